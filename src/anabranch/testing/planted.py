"""Planted bugs: known mistakes, brought back on purpose to show that a test would see them.

A bug is a small replacement for one named function of the product; the product has no switch for
it. Bugs live in `anabranch.testing.bugs`, one module per product folder:

    @planted("gate_skips_cache", target="anabranch.metadata.switchable:Gate.enter")
    def gate_skips_cache(self: Gate) -> None: ...

`with applied("gate_skips_cache"):` puts it in place in this process;
`python -m anabranch.testing.planted gate_skips_cache -- anabranch standalone ...` starts a process
with it.
"""

import contextlib
import importlib
import pkgutil
import runpy
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from anabranch.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
BUGS_PACKAGE = "anabranch.testing.bugs"
_PRODUCT = ("anabranch", "pyspark_anabranch")
_MISSING = object()
_PYTHON = """#!/bin/sh
if [ "$1" = -m ]; then exec {python} -m {planted} {name} -- python "$@"; fi
exec {python} "$@"
"""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A replacement for one function."""

    name: str
    target: str
    replacement: Callable[..., Any]

    @property
    def summary(self) -> str:
        """The first line of the replacement's docstring."""
        return (self.replacement.__doc__ or "").strip().partition("\n")[0]


_registered: dict[str, PlantedBug] = {}
_originals: dict[str, Any] = {}


def planted(name: str, *, target: str) -> Callable[[F], F]:
    """Register a function as the buggy stand-in for `module:Qualified.name`."""
    assert all(target.partition(":")), f"target must be module:Qualified.name: {target}"

    def register(replacement: F) -> F:
        assert name not in _registered, f"two planted bugs are called {name}"
        assert replacement.__doc__, f"planted bug {name} must say what is wrong with it"
        _registered[name] = PlantedBug(name, target, replacement)
        return replacement

    return register


def original(name: str) -> Any:
    """The function that a bug stands in for; only while the bug is applied."""
    return _originals[name]


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line of a child process that has the bugs of this one, for tests of processes."""
    command = ["python", "-m", module, *arguments]
    assert len(_originals) <= 1, f"a child can have one planted bug: {sorted(_originals)}"
    for name in _originals:
        return [sys.executable, "-m", "anabranch.testing.planted", name, "--", *command]
    return [sys.executable, *command[1:]]


def child_python(folder: Path) -> str:
    """A Python whose modules have the bugs of this process: of programs that start their own."""
    if not _originals:
        return sys.executable
    (name,) = _originals
    script = folder / "python"
    script.write_text(_PYTHON.format(python=sys.executable, planted=__name__, name=name))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def load_bugs() -> dict[str, PlantedBug]:
    """Import every module of bugs and return all by name."""
    package = importlib.import_module(BUGS_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__, f"{BUGS_PACKAGE}."):
        importlib.import_module(module.name)
    return dict(sorted(_registered.items()))


@contextlib.contextmanager
def applied(name: str) -> Iterator[PlantedBug]:
    """Put a planted bug in place for the length of a block.

    Raises:
        InputError: if there is no such bug, or its target is not there any more.
    """
    bugs = load_bugs()
    if name not in bugs:
        raise InputError(f"no planted bug {name!r}; there are: {', '.join(bugs) or 'none'}")
    bug = bugs[name]
    owner, attribute = _resolve(bug)
    raw = vars(owner).get(attribute, _MISSING)
    if raw is _MISSING:
        raise InputError(f"planted bug {name}: {bug.target} is not defined there any more")
    replacement: Any = bug.replacement
    if isinstance(raw, staticmethod | classmethod):
        replacement = type(raw)(replacement)
    places = [(owner, attribute), *_other_names(raw)]
    _originals[name] = getattr(owner, attribute)
    for place, key in places:
        setattr(place, key, replacement)
    try:
        yield bug
    finally:
        for place, key in places:
            setattr(place, key, raw)
        del _originals[name]


def _resolve(bug: PlantedBug) -> tuple[Any, str]:
    """The object that holds the target, and the target's name in it."""
    module, _, path = bug.target.partition(":")
    *holders, attribute = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for holder in holders:
            owner = getattr(owner, holder)
    except (ImportError, AttributeError) as error:
        raise InputError(f"planted bug {bug.name}: no {bug.target}: {error}") from error
    return owner, attribute


def _other_names(raw: Any) -> list[tuple[Any, str]]:
    """Where else loaded product modules hold the same function, having imported it by name."""
    return [
        (module, key)
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in _PRODUCT and not name.startswith("anabranch.testing.")
        for key, value in list(vars(module).items())
        if value is raw
    ]


def _program(command: list[str]) -> tuple[str, list[str]]:
    """The module that a command line starts, and the arguments it is given."""
    if command[:1] == ["anabranch"]:
        return "anabranch", command[1:]
    if command[:2] == ["python", "-m"] and len(command) > 2:
        return command[2], command[3:]
    raise InputError(
        f"cannot start {command!r}: after -- comes 'anabranch ...' or 'python -m module ...'"
    )


def main(arguments: list[str]) -> int:
    """List the bugs, or start a command with one of them in place."""
    if arguments == ["--list"]:
        for bug in load_bugs().values():
            print(f"{bug.name}\t{bug.target}\t{bug.summary}")
        return 0
    if len(arguments) < 3 or arguments[1] != "--":
        print("usage: planted --list | planted NAME -- anabranch ... | planted NAME -- python -m m")
        return 2
    with contextlib.ExitStack() as stack:
        try:
            module, sys.argv[1:] = _program(arguments[2:])
            stack.enter_context(applied(arguments[0]))
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    # Bugs register with the module of this name, which is not the one that runs as a program.
    sys.exit(importlib.import_module("anabranch.testing.planted").main(sys.argv[1:]))
