"""Planted bugs: put in place and taken out again, in this process and in one that is started."""

import inspect
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.runtime.tasks import Tasks
from anabranch.testing import planted


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch.testing.planted", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", planted.load_bugs())
def test_every_bug_has_its_target_and_leaves_no_trace(name: str) -> None:
    bug = planted.load_bugs()[name]
    owner, attribute = planted._resolve(bug)
    before = vars(owner)[attribute]
    with planted.applied(name):
        assert vars(owner)[attribute] is not before
    assert vars(owner)[attribute] is before
    assert bug.summary


def not_taken(target: Callable[..., object], replacement: Callable[..., object]) -> str:
    """What a call may hand to one function and the other does not take, or nothing."""
    kinds = inspect.Parameter
    by_place = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    wanted = inspect.signature(target).parameters.values()
    takes = inspect.signature(replacement).parameters.values()
    lacking = sum(each.kind in by_place for each in wanted)
    lacking -= sum(each.kind in by_place for each in takes)
    if lacking > 0 and all(each.kind is not kinds.VAR_POSITIONAL for each in takes):
        return f"{lacking} arguments by place"
    if any(each.kind is kinds.VAR_KEYWORD for each in takes):
        return ""
    named = {each.name for each in wanted if each.kind is kinds.KEYWORD_ONLY}
    return ", ".join(sorted(named - {each.name for each in takes}))


@pytest.mark.parametrize("name", planted.load_bugs())
def test_every_bug_can_be_called_as_its_target_is(name: str) -> None:
    """Or a test would notice a call that fails, whatever the bug does."""
    bug = planted.load_bugs()[name]
    owner, attribute = planted._resolve(bug)
    target = vars(owner)[attribute]
    target = target.fget if isinstance(target, property) else inspect.unwrap(target)
    plain = getattr(target, "__func__", target)
    assert not not_taken(plain, bug.replacement)


def test_a_bug_that_cannot_be_called_as_its_target_is_found() -> None:
    def target(one: int, two: int = 2, *, three: int = 3) -> None: ...
    def renamed(_one: int, _two: int = 0, *, three: int = 0) -> None: ...
    def any_number(*_places: int, **_names: int) -> None: ...
    def shorter(one: int, *, three: int) -> None: ...
    def nameless(one: int, two: int) -> None: ...

    assert not_taken(target, renamed) == not_taken(target, any_number) == ""
    assert not_taken(target, shorter) == "1 arguments by place"
    assert not_taken(target, nameless) == "three"


def test_a_bug_is_taken_out_also_after_an_error() -> None:
    before = Tasks._finished
    during: list[object] = []

    def fail_inside() -> None:
        with planted.applied("tasks_swallow_failures"):
            during.extend((Tasks._finished, planted.original("tasks_swallow_failures")))
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert during[0] is not before
    assert during[1] is before
    assert Tasks._finished is before


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A product module with a function, a class, and a neighbour that imported the function."""
    module = types.ModuleType("anabranch.sandbox")

    def plain() -> str:
        return "right"

    class Thing:
        @staticmethod
        def still() -> str:
            return "right"

        @classmethod
        def kind(cls) -> str:
            return cls.__name__

    module.plain = plain  # type: ignore[attr-defined]
    module.Thing = Thing  # type: ignore[attr-defined]
    neighbour = types.ModuleType("anabranch.neighbour")
    neighbour.renamed = plain  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "anabranch.sandbox", module)
    monkeypatch.setitem(sys.modules, "anabranch.neighbour", neighbour)
    monkeypatch.setattr(planted, "_registered", dict(planted._registered))
    return module


def test_a_function_imported_by_name_is_replaced_there_too(sandbox: types.ModuleType) -> None:
    @planted.planted("wrong", target="anabranch.sandbox:plain")
    def wrong() -> str:
        """Wrong."""
        return "not " + str(planted.original("wrong")())

    neighbour = sys.modules["anabranch.neighbour"]
    with planted.applied("wrong"):
        assert sandbox.plain() == neighbour.renamed() == "not right"
    assert sandbox.plain() == neighbour.renamed() == "right"


def test_static_and_class_methods_stay_what_they_are(sandbox: types.ModuleType) -> None:
    @planted.planted("still", target="anabranch.sandbox:Thing.still")
    def still() -> str:
        """Wrong."""
        return "wrong"

    @planted.planted("kind", target="anabranch.sandbox:Thing.kind")
    def kind(cls: type) -> str:
        """Wrong."""
        return f"not a {cls.__name__}"

    with planted.applied("still"), planted.applied("kind"):
        assert sandbox.Thing().still() == "wrong"
        assert sandbox.Thing.kind() == "not a Thing"
    assert sandbox.Thing.kind() == "Thing"


@pytest.mark.parametrize(
    "target",
    ["anabranch.sandbox:gone", "anabranch.sandbox:Gone.gone", "anabranch.nowhere:gone"],
)
def test_a_bug_whose_target_is_gone_is_refused(sandbox: types.ModuleType, target: str) -> None:
    @planted.planted("stale", target=target)
    def stale() -> None:
        """Wrong."""

    with pytest.raises(InputError, match="planted bug stale"), planted.applied("stale"):
        pass


def test_an_unknown_bug_is_refused_with_the_known_names() -> None:
    known = r"no planted bug 'x'.*tasks_swallow_failures"
    with pytest.raises(InputError, match=known), planted.applied("x"):
        pass


def test_the_program_lists_starts_and_refuses() -> None:
    listed = program("--list")
    assert listed.returncode == 0
    assert "tasks_swallow_failures\tanabranch.runtime.tasks:Tasks._finished\t" in listed.stdout
    started = program("tasks_swallow_failures", "--", "anabranch", "--version")
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("anabranch ")
    module = program("tasks_swallow_failures", "--", "python", "-m", "platform", "terse")
    assert module.returncode == 0
    assert sys.platform in module.stdout.lower()
    for wrong in (["nothing", "--", "anabranch"], ["tasks_swallow_failures", "--", "rm", "x"], []):
        refused = program(*wrong)
        assert refused.returncode == 2
        assert refused.stdout + refused.stderr


def test_a_python_for_programs_that_start_others_has_the_bug_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planted.child_python(tmp_path) == sys.executable
    said = "from anabranch.runtime.tasks import Tasks\nprint(Tasks._finished.__name__)\n"
    (tmp_path / "probe.py").write_text(said)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with planted.applied("tasks_swallow_failures"):
        python = planted.child_python(tmp_path)

    def output(*arguments: str) -> str:
        return subprocess.run(
            [python, *arguments], capture_output=True, text=True, check=True
        ).stdout

    assert output("-m", "probe") == "tasks_swallow_failures\n"
    assert output("-c", said) == "_finished\n", "what looks at the Python starts no program"


def test_the_started_program_has_the_bug_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe.py").write_text(
        "from anabranch.runtime.tasks import Tasks\nprint(Tasks._finished.__name__)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert program("tasks_swallow_failures", "--", "python", "-m", "probe").stdout == (
        "tasks_swallow_failures\n"
    )
