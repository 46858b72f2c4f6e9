"""The house rules that no linter knows."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if "generated" not in path.parts
)
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
BANNED_MODULE_NAMES = {"utils", "util", "common", "helpers", "manager", "base", "core", "misc"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_module_is_tidy(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.count("\n")
    assert lines <= MODULE_LINES_MAX, f"{lines} lines: split the module"
    if text:
        assert ast.get_docstring(tree), "a module says in its docstring what lives in it"
    assert path.stem not in BANNED_MODULE_NAMES, "name the module for what it holds"
    for marker in ("FIX" + "ME", "TO" + "DO", "XX" + "X"):
        assert marker not in text, f"leftover {marker}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


@pytest.mark.parametrize(
    "page",
    sorted(p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]),
    ids=name_of,
)
def test_page_has_one_title(page: Path) -> None:
    fenced = False
    titles = 0
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        titles += not fenced and line.startswith("# ")
    assert titles == 1


def test_modules_of_tests_have_names_of_their_own() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
