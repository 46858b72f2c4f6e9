"""The record of proofs: which test noticed which planted bug, and in which state of the code.

A proof is bound to the sources it was made of: the module that the bug breaks, the bug, the module
of the test, and what that imports from `anabranch.testing` (contract suites, scenarios, made
histories). It is *stale* when one of them changed, and then proves nothing until it is made again.
"""

import ast
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.testing.planted import PlantedBug

ROOT: Final = Path(__file__).parents[3]
RECORD: Final = ROOT / "tests" / "planted_record.tsv"
_HEADER: Final = "bug\ttest\tdigest\tseed\tseconds"
_SUPPORT: Final = "anabranch.testing."
_NOT_SUPPORT: Final = ("anabranch.testing.planted", "anabranch.testing.bugs")
"""Machinery and other bugs: they do not change what a test shows."""


class Proof(NamedTuple):
    """A test that went red with a bug and was green without it."""

    bug: str
    test: str
    """The test function; with parameters it is one test, and one red case is enough."""
    digest: str
    seed: str
    seconds: float


def function_of(test: str) -> str:
    """The id of a test without its parameters."""
    return test.partition("[")[0]


Key = tuple[str, str]
"""A bug and a test function."""


def load_record(path: Path = RECORD) -> dict[Key, Proof]:
    """Every proof that was recorded, stale ones too."""
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    assert lines[0] == _HEADER, f"{path} has other columns than {_HEADER!r}"
    proofs = {}
    for line in lines[1:]:
        bug, test, digest, seed, seconds = line.split("\t")
        proofs[bug, test] = Proof(bug, test, digest, seed, float(seconds))
    return proofs


def save_record(proofs: Mapping[Key, Proof], path: Path = RECORD) -> None:
    """Replace the record at once, sorted, so that branches seldom collide in it."""
    rows = [
        f"{p.bug}\t{p.test}\t{p.digest}\t{p.seed}\t{p.seconds:.1f}\n"
        for _, p in sorted(proofs.items())
    ]
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(f"{_HEADER}\n{''.join(rows)}")
    new.replace(path)


def valid_proofs(
    bugs: Mapping[str, PlantedBug], recorded: Iterable[Proof], root: Path = ROOT
) -> set[Key]:
    """Those whose bug, target and test are still what they were."""
    return {
        (proof.bug, proof.test)
        for proof in recorded
        if proof.bug in bugs
        and (root / proof.test.partition("::")[0]).exists()
        and digest_of(bugs[proof.bug], proof.test, root) == proof.digest
    }


def digest_of(bug: PlantedBug, test: str, root: Path = ROOT) -> str:
    """A fingerprint of everything a proof depends on."""
    test_file = root / test.partition("::")[0]
    digest = hashlib.sha256()
    for part in (
        bug.target.encode(),
        _source_of_module(bug.target.partition(":")[0]),
        source_of_bug(bug).encode(),
        test_file.read_bytes(),
        *(path.read_bytes() for path in support_of(test_file)),
    ):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:16]


@cache
def _file_of_module(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a name in a module, not a module
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _source_of_module(name: str) -> bytes:
    path = _file_of_module(name)
    # A target that is gone makes the proof stale; applying the bug says what is wrong with it.
    return path.read_bytes() if path is not None else b""


def source_of_bug(bug: PlantedBug) -> str:
    """The bug's function, and whatever of its module it uses."""
    tree = ast.parse(Path(bug.replacement.__code__.co_filename).read_bytes())
    defined = {name: node for node in tree.body for name in _names_defined_by(node)}
    used = _uses(bug.replacement.__name__, defined)
    return "\n".join(ast.unparse(defined[name]) for name in sorted(used))


def _names_defined_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _uses(name: str, defined: Mapping[str, ast.stmt]) -> set[str]:
    used: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name in defined and name not in used:
            used.add(name)
            waiting += [n.id for n in ast.walk(defined[name]) if isinstance(n, ast.Name)]
    return used


def support_of(test_file: Path) -> list[Path]:
    """Files beside the test, and modules of `anabranch.testing`, that the test imports."""
    found: set[Path] = set()
    for name in imports_of(ast.parse(test_file.read_bytes())):
        beside = test_file.with_name(f"{name}.py")
        if beside.exists():
            found.add(beside)
        elif name.startswith(_SUPPORT) and not name.startswith(_NOT_SUPPORT):
            path = _file_of_module(name)
            if path is not None:
                found.add(path)
    return sorted(found)


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Names of modules that a module imports, and of what it takes from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
