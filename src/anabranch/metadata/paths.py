"""The grammar of metadata paths: one checker, and the few questions others ask about a path.

Pure. What is refused here, every store refuses. A store on ZooKeeper refuses more, names above
U+FFFF: a copy into it says so before it writes anything (`transfer.keeping`).
"""

import re
from collections.abc import Iterator

from anabranch import limits
from anabranch.errors import InvalidPath

ROOT = "/"
# ZooKeeper's list: control characters, surrogates, private use, specials.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_EMPTY_OR_RELATIVE_NAME = re.compile(r"/(?:\.{0,2})(?:/|$)")


def check_path(path: str) -> str:
    """Return the path if it may be used.

    Raises:
        InvalidPath: saying what is wrong with it.
    """
    if (
        path.isascii()
        and path.isprintable()
        and path.startswith(ROOT)
        and "//" not in path
        and "/." not in path
        and not path.endswith("/")
        and len(path) <= limits.METADATA_PATH_BYTES_MAX
    ):
        return path  # nearly all are like this, and whole trees of them are checked
    if path == ROOT:
        return path
    if not path.startswith(ROOT):
        raise InvalidPath(f"a path starts with '/': {path[:80]!r}")
    if path.endswith("/"):
        raise InvalidPath(f"a path does not end with '/': {path[:80]!r}")
    if _FORBIDDEN.search(path):
        raise InvalidPath(f"a path has no control or private characters: {path[:80]!r}")
    if _EMPTY_OR_RELATIVE_NAME.search(path):
        raise InvalidPath(f"a path has no empty names and no '.' or '..': {path[:80]!r}")
    size_bytes = len(path) if path.isascii() else len(path.encode())
    if size_bytes > limits.METADATA_PATH_BYTES_MAX:
        raise InvalidPath(
            f"a path has at most {limits.METADATA_PATH_BYTES_MAX} bytes, "
            f"this one has {size_bytes}: {path[:80]!r}"
        )
    return path


def parent_of(path: str) -> str:
    """The path one level up; the root has none."""
    assert path != ROOT
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """The last name of a path."""
    return path[path.rindex("/") + 1 :]


def join(parent: str, name: str) -> str:
    """The path of a child."""
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"


def ancestors_of(path: str) -> Iterator[str]:
    """Every path between the root and this one, both left out, from the top down."""
    end = path.find("/", 1)
    while end != -1:
        yield path[:end]
        end = path.find("/", end + 1)


def is_within(prefix: str, path: str) -> bool:
    """Whether a path is at or below `prefix`."""
    return prefix == ROOT or path == prefix or path.startswith(f"{prefix}/")


def order_key(path: str) -> str:
    """A key that sorts as path order does, in which a node's subtree directly follows it."""
    return "" if path == ROOT else path.replace("/", "\x00")


def path_of_order_key(key: str) -> str:
    """Undo `order_key`."""
    return key.replace("\x00", "/") or ROOT
