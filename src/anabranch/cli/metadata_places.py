"""What the commands about metadata share: opening stores, showing nodes, ending."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from anabranch.cli.verdicts import Output
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConfigError,
    ConflictError,
    NotFound,
    OutcomeUnknown,
)

if TYPE_CHECKING:
    from anabranch.metadata.store import Expected, MetadataStore, Stat
    from anabranch.runtime import Runtime

EXIT_REFUSED: Final = 1
EXIT_UNUSABLE: Final = 2
EXIT_UNKNOWN: Final = 3
_EXIT_INTERRUPTED: Final = 130
_SESSION_TIMEOUT_S: Final = 10.0
_EMBEDDED: Final = "embedded:"
_ZOOKEEPER: Final = "zk:"

T = TypeVar("T")
UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ANABRANCH_METADATA_URL",
        help="The store, such as anabranch://HOST:PORT, or embedded:FOLDER of a stopped server.",
    ),
]
CredentialsOption = Annotated[
    str,
    typer.Option(
        "--credentials",
        envvar="ANABRANCH_METADATA_CREDENTIALS",
        help="TOML file with passwords, tokens and certificates for stores of others.",
        show_default=False,
    ),
]
OutputOption = Annotated[Output, typer.Option(help="How to print.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]


@asynccontextmanager
async def opened(
    url: str,
    runtime: "Runtime",
    credentials: str,
    *,
    may_be_new: bool = False,
    only_look: bool = True,
) -> "AsyncIterator[MetadataStore]":
    """A store that is closed afterwards; `credentials` is the name of a file, or "".

    With `only_look` nothing is made. Otherwise a chroot in ZooKeeper is, if it is missing, and an
    embedded store where `may_be_new` says so.

    Raises:
        ConfigError: if there is no such store, or the credentials are wrong.
    """
    from anabranch.metadata.factory import open_store
    from anabranch.server.credentials_file import load_credentials

    if url.startswith(_EMBEDDED) and not _holds_store(url.removeprefix(_EMBEDDED)):
        if not may_be_new:
            raise ConfigError(_no_store(url.removeprefix(_EMBEDDED)))
        if only_look:
            url = "memory:"
    known = load_credentials(credentials, warn)
    try:
        store = await open_store(
            url,
            runtime,
            session_timeout_s=_SESSION_TIMEOUT_S,
            credentials=known,
            may_make=not only_look,
        )
    except NotFound:
        if not (may_be_new and only_look and url.startswith(_ZOOKEEPER)):
            raise
        store = await open_store("memory:", runtime)  # as empty as what would be made
    try:
        yield store
    finally:
        await store.close()


async def is_there(url: str, runtime: "Runtime", credentials: str) -> bool:
    """Whether `opened` would have nothing to make.

    Raises:
        ConfigError: if there is no such store, or the credentials are wrong.
    """
    if url.startswith(_EMBEDDED):
        return _holds_store(url.removeprefix(_EMBEDDED))
    if not url.startswith(_ZOOKEEPER):
        return True
    try:
        async with opened(url, runtime, credentials):
            return True
    except NotFound:
        return False


@asynccontextmanager
async def counted(store: "MetadataStore", path: str) -> "AsyncIterator[None]":
    """Around writes at or below a path, to a store that may be replaced just now.

    Raises:
        ConfigError: if the store was left, or is a copy that is not in use for good.
        Unreachable: if writes wait.
        OutcomeUnknown: if what was written may be in no store that is in use.
    """
    from anabranch.metadata.announced import stays_behind
    from anabranch.metadata.switchable import passing_by
    from anabranch.migrations.freeze_copy.reservation import refuse_copy
    from anabranch.migrations.freeze_copy.steps import FreezeCopy

    if stays_behind(path):
        yield  # what belongs to the operation itself is in no copy
        return
    await refuse_copy(store)
    async with passing_by.counted(store, FreezeCopy.kind):
        yield


async def check_writable(store: "MetadataStore") -> None:
    """Make sure that a store can be written now, before much is; see `counted`."""
    from anabranch.metadata.switchable import passing_by
    from anabranch.migrations.freeze_copy.reservation import refuse_copy
    from anabranch.migrations.freeze_copy.steps import FreezeCopy

    await refuse_copy(store)
    await passing_by.look(store, FreezeCopy.kind)


def warn(sentence: str) -> None:
    """Say something on standard error besides what was asked for."""
    print(f"warning: {sentence}", file=sys.stderr)


def tell_notes(error: BaseException) -> None:
    """What was left half done, for who interrupted a command or met a bug of ours."""
    for note in getattr(error, "__notes__", ()):
        warn(safe(note))


def _holds_store(folder: str) -> bool:
    return not folder or (Path(folder) / "log").is_dir()  # without a name the factory refuses


def _no_store(folder: str) -> str:
    inner = Path(folder) / "metadata"
    hint = f": write embedded:{inner}" if (inner / "log").is_dir() else ""
    return f"there is no metadata store in {folder}{hint}"


def run(work: "Callable[[Runtime], Awaitable[T]]") -> T:
    """Run a command to its end; what went wrong becomes one line and an exit code."""
    from anabranch.runtime.real import real_runtime

    async def main() -> T:
        try:
            return await work(real_runtime())
        except BaseException as error:
            tell_notes(error)
            raise

    try:
        return asyncio.run(main())
    except OutcomeUnknown as error:
        code, said = EXIT_UNKNOWN, f"the outcome is not known, read it back: {error}"
    except (ConflictError, NotFound) as error:
        code, said = EXIT_REFUSED, str(error)
    except (AnabranchError, OSError) as error:
        code, said = EXIT_UNUSABLE, str(error)
    except KeyboardInterrupt:
        code, said = _EXIT_INTERRUPTED, "interrupted"
    print(f"error: {safe(said)}", file=sys.stderr)  # a server may have said some of it
    raise typer.Exit(code)


async def expected_from(store: "MetadataStore", path: str, text: str | None) -> "Expected":
    """What `--expected-version` means: a token as it was printed, a plain number, or absent.

    Raises:
        ConfigError: if it is none of them.
        BadVersion: if it is a number and the node has another one.
    """
    from anabranch.metadata.store import ABSENT, ANY, Version

    if text is None:
        return ANY
    if text == "absent":
        return ABSENT
    parts = text.split(".")
    if len(parts) not in (1, 3) or not all(
        part.isascii() and part.isdigit() and len(part) < 20 for part in parts
    ):
        raise ConfigError(
            f"--expected-version {text!r} is not 'absent', a number, or a version such as 0.3.17"
        )
    if len(parts) == 3:
        return Version(*map(int, parts))
    node = await store.get(path)
    if node is None or node.stat.version.native != int(text):
        found = "there is no node" if node is None else f"found {node.stat.version.native}"
        raise BadVersion(path, f"expected {text}, {found}")
    return node.stat.version


def safe(text: str) -> str:
    """Text without what would move the cursor or change the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def value_text(value: bytes) -> str:
    """A value as a person may look at it; text stays text, with its lines."""
    text = value.decode(errors="backslashreplace")
    return "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))


def value_json(value: bytes) -> dict[str, str]:
    """A value as a member of a JSON object: as text if it is some, else in base64."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode()}


def stat_json(stat: "Stat") -> dict[str, Any]:
    """A node's stat as members of a JSON object."""
    version = stat.version
    return {
        "path": stat.path,
        "version": f"{version.epoch}.{version.native}.{version.life}",
        "native_version": version.native,
        "revision": f"{stat.revision.epoch}.{stat.revision.index}",
        "created": time_text(stat.created_ms),
        "modified": time_text(stat.modified_ms),
        "ephemeral": stat.ephemeral,
    }


def time_text(wall_ms: int) -> str:
    """A moment in ISO 8601; the number itself if it is no moment of a calendar."""
    try:
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(wall_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print one of many JSON documents."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_fields(fields: dict[str, Any]) -> None:
    """Print names and values, one pair per line."""
    for name, value in fields.items():
        shown = safe(value) if isinstance(value, str) else value
        print(f"{name.replace('_', ' '):16} {shown}")
