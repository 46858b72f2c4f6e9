"""Patterns of topic names match as regular expressions do, and never take long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.limits import TOPIC_PATTERN_CHARACTERS_MAX
from anabranch.broker.topic_patterns import TopicPattern
from anabranch.errors import InputError

PARTS = st.sampled_from(
    ["a", "b", "ab", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\.", "-", "(a|b)", "(?:ab|)"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])
PATTERNS = st.lists(st.tuples(PARTS, REPEATS).map("".join), max_size=6).map("".join)
PATTERNS = PATTERNS.filter(lambda pattern: len(pattern) <= TOPIC_PATTERN_CHARACTERS_MAX)


@given(PATTERNS, st.text("abc1.-", max_size=12))
def test_a_name_matches_as_it_does_elsewhere(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@given(st.text(r"ab()[]{}*+?|\.^$-,12dw:", max_size=20), st.text("ab1", max_size=20))
def test_what_is_understood_is_understood_rightly(pattern: str, name: str) -> None:
    try:
        found = TopicPattern(pattern).matches(name)
    except InputError:
        return
    # A ^ or $ at the ends says nothing for whole names, and would bind to one side of a |.
    inner = pattern.removeprefix("^")
    inner = inner[:-1] if inner.endswith("$") and not inner.endswith("\\$") else inner
    assert found == (re.fullmatch(f"(?:{inner})", name) is not None)


def test_schemes_are_left_out() -> None:
    assert TopicPattern("persistent://public/default/a.*").matches("public/default/abc")
    longest = "a" * TOPIC_PATTERN_CHARACTERS_MAX
    assert TopicPattern(f"persistent://{longest}").matches(longest)
    assert TopicPattern("^non-persistent://p/d/.*$").matches("p/d/x")
    assert not TopicPattern("p/d/x").matches("p/d/xy")


@pytest.mark.parametrize(
    "wrong",
    [
        "a" * 51, "(a", "a)", "[a", "*", "a**", "a{", "a{x}", "a{2,1}", "(?=a)", r"\b",
        "(a{999}){999}", "[b-a]", "a\\", "(((((){2000}){2000}){2000}){2000}){2000}",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(wrong: str) -> None:
    with pytest.raises(InputError):
        TopicPattern(wrong)


def test_malice_takes_no_longer() -> None:
    assert not TopicPattern("(a+)+(a+)+(a+)+b").matches("a" * 1000)
