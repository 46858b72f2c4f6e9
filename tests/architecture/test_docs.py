"""The documentation holds together: links, reading order, commands. What its code does is shown by
`tests/interop/test_docs_are_true.py`."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from anabranch.cli.main import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
README_LINES_MAX = 150
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
ANABRANCH = re.compile(r"(?:^|[\s/])anabranch ((?:[a-z][a-z-]* ?)+)")
MODULE = re.compile(r"python -m (anabranch(?:\.\w+)*|benchmarks)")
WHOLE_COMMAND = re.compile(r"^(?:\$ )?(?:\S+/)?anabranch (.*)$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
PATH_IN_CODE = re.compile(r"^(?:src|tests|docs|examples|benchmarks|proto|requirements)/[\w./-]+$")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands_in(text: str) -> Iterator[str]:
    """What a reader would type: the lines of blocks without a language, and code in sentences."""
    for language, body in FENCE.findall(text):
        if language in ("", "console", "sh"):
            yield from body.splitlines()
    yield from CODE.findall(FENCE.sub("", text))


def anchor_of(title: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", title.strip().lower())
    return kept.replace(" ", "-")


@pytest.fixture(scope="module")
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def command():
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"link to {target}"
        assert file.is_relative_to(ROOT), f"{target} leads out of the repository"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in map(anchor_of, titles), f"no title for {target}"


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= README_LINES_MAX


def test_reading_order_has_every_page() -> None:
    order = DOCS / "README.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(order.read_text())}
    decisions = DOCS / "decisions"
    wanted = {page for page in PAGES if page.parent != decisions} - {order}
    assert sorted(map(name_of, wanted - linked)) == []
    # Decisions have an index of their own.
    text = (decisions / "README.md").read_text()
    linked = {decisions / link for link in LINK.findall(text)}
    records = {page for page in decisions.glob("*.md") if page.name != "README.md"}
    assert sorted(map(name_of, records ^ linked)) == []


def test_no_two_decisions_have_one_number() -> None:
    records = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    numbers = [name.partition("-")[0] for name in records]
    assert sorted(set(numbers)) == numbers


def whole_commands_in(text: str) -> Iterator[list[str]]:
    """The words of every command of ours that stands in a line of its own, for the shell to run."""
    for language, body in FENCE.findall(text):
        if language in ("", "console", "sh", "bash"):
            for line in WHOLE_COMMAND.findall(body.replace("\\\n", " ")):
                yield shlex.split(line, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_take_what_they_are_given(page: Path, command) -> None:
    for words in whole_commands_in(page.read_text()):
        found, rest = command, words
        while hasattr(found, "commands"):
            found, rest = found.commands[rest[0]], rest[1:]
        assert refusal_of(found, rest) == "", f"anabranch {shlex.join(words)}"


def refusal_of(command, words: list[str]) -> str:
    """What a command says to words that it does not take; files of a guide need not be here."""
    try:
        command.make_context(command.name, list(words))
    except typer.BadParameter.__bases__ as error:  # the library has no other name for it
        return "" if "does not exist" in str(error) else str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path, make_targets: set[str], command) -> None:
    for line in commands_in(page.read_text()):
        for target in MAKE.findall(line):
            assert target in make_targets, f"no target: make {target}"
        for words in ANABRANCH.findall(line):
            found = command
            for word in words.split():
                if not hasattr(found, "commands"):
                    break
                assert word in found.commands, f"no command: anabranch {words}"
                found = found.commands[word]
        for module in MODULE.findall(line):
            place = Path(*module.split("."))
            homes = [ROOT / "src" / place, ROOT / place]
            assert any(
                home.with_suffix(".py").exists() or (home / "__main__.py").exists()
                for home in homes
            ), f"cannot be started: {module}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    for code in CODE.findall(FENCE.sub("", page.read_text())):
        if PATH_IN_CODE.match(code) and "/.results" not in code:
            assert (ROOT / code).exists(), f"no {code}"


def test_every_folder_says_what_lives_there() -> None:
    for folder in sorted((ROOT / "src" / "anabranch").rglob("*")):
        if folder.is_dir() and any(folder.glob("*.py")) and folder.name != "generated":
            first = folder / "__init__.py"
            assert first.exists(), f"{name_of(folder)} is no package"
            assert ast.get_docstring(ast.parse(first.read_text())), f"{name_of(first)} says nothing"


def test_every_layer_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    source = ROOT / "src" / "anabranch"
    places = [path for path in source.iterdir() if path.is_dir() or path.suffix == ".py"]
    assert named == {path.stem for path in places if not path.name.startswith("__")}
