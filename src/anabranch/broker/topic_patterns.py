"""Patterns of topic names, matched in time that grows with the name and not with malice. Pure.

Clients send regular expressions, and some of those take a backtracking matcher for ever. Here a
pattern is a set of states that all advance together, as in RE2, which Pulsar's broker uses. What is
understood: literals, dots, classes, escapes of digits, words and blanks, groups, alternatives,
repeats with and without bounds, and marks of begin and end at the ends. Anything else is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from anabranch.broker.limits import TOPIC_PATTERN_CHARACTERS_MAX, TOPIC_PATTERN_STATES_MAX
from anabranch.errors import InputError

_Test = Callable[[str], bool]
_CLASSES: Final[dict[str, _Test]] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
    "s": lambda c: c in " \t\n\r\f\v",
}
_DOMAINS: Final = ("non-persistent://", "persistent://")


@dataclass(slots=True, eq=False)
class _State:
    """Goes on over a character, or at once to others; the last one has neither."""

    test: _Test | None = None
    over: "_State | None" = None
    at_once: "list[_State]" = field(default_factory=list)


class TopicPattern:
    """A pattern that whole names are held against, without scheme and partition."""

    def __init__(self, text: str) -> None:
        """Understand a pattern.

        Raises:
            InputError: if it is too long, or not one of those understood here.
        """
        for domain in _DOMAINS:
            text = text.replace(domain, "", 1) if text.lstrip("^").startswith(domain) else text
        # As Pulsar's broker counts: the scheme, which every client may add, is not among them.
        if len(text) > TOPIC_PATTERN_CHARACTERS_MAX:
            raise InputError(
                f"Pattern longer than maximum: {TOPIC_PATTERN_CHARACTERS_MAX} characters"
            )
        self._end = _State()
        self._start = _Compiler(text).whole(self._end)

    def matches(self, name: str) -> bool:
        """Whether the whole name is one of those meant."""
        states = _reached([self._start])
        for character in name:
            states = _reached([s.over for s in states if s.test and s.over and s.test(character)])
            if not states:
                return False
        return self._end in states


def _reached(states: list[_State]) -> list[_State]:
    found: dict[_State, None] = {}
    todo = list(states)
    while todo:
        state = todo.pop()
        if state not in found:
            found[state] = None
            todo += state.at_once
    return list(found)


_Piece = Callable[[_State], _State]
"""Given what comes after it, returns where it begins."""


class _Compiler:
    """Reads a pattern from left to right; pieces are built from right to left."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith("\\$"):
            self._text = self._text[:-1]
        self._at = 0
        self._states = 0
        self._repeats = 0

    def whole(self, end: _State) -> _State:
        piece = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("an unmatched )")
        return piece(end)

    def _state(self, test: _Test | None = None, over: _State | None = None) -> _State:
        self._states += 1
        if self._states > TOPIC_PATTERN_STATES_MAX:
            raise InputError("the pattern repeats too much")
        return _State(test, over)

    def _wrong(self, what: str) -> InputError:
        return InputError(f"the pattern {self._text!r} has {what} at {self._at}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("no end")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> _Piece:
        choices = [self._sequence()]
        while self._peek() == "|":
            self._take()
            choices.append(self._sequence())
        if len(choices) == 1:
            return choices[0]

        def build(after: _State) -> _State:
            fork = self._state()
            fork.at_once = [choice(after) for choice in choices]
            return fork

        return build

    def _sequence(self) -> _Piece:
        pieces = []
        while self._peek() not in ("", "|", ")"):
            pieces.append(self._repeated(self._atom()))

        def build(after: _State) -> _State:
            for piece in reversed(pieces):
                after = piece(after)
            return after

        return build

    def _repeated(self, piece: _Piece) -> _Piece:
        mark = self._peek()
        if mark not in ("*", "+", "?", "{") or not mark:
            return piece
        self._take()
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": (0, 0)}[mark]
        if mark == "{":
            low, high = self._bounds()
        if self._peek() == "?":
            self._take()  # lazy: changes what is captured, not whether a whole name matches
        elif self._peek() in ("+", "*", "{"):
            raise self._wrong("a repeat of a repeat")

        def build(after: _State) -> _State:
            if high is None:
                loop = self._state()
                loop.at_once = [piece(loop), after]
                after = loop
            else:
                for _ in range(high - low):
                    fork = self._state()
                    fork.at_once = [piece(after), after]
                    after = fork
            for _ in range(low):
                self._repeats += 1  # a piece may be empty and make no state
                if self._repeats > TOPIC_PATTERN_STATES_MAX:
                    raise InputError("the pattern repeats too much")
                after = piece(after)
            return after

        return build

    def _bounds(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        inside = self._text[self._at : end] if end >= 0 else ""
        low, comma, high = inside.partition(",")
        if not low.isascii() or not low.isdigit() or not (high.isdigit() or not high):
            raise self._wrong("a repeat without numbers")
        self._at = end + 1
        least = int(low)
        most = least if not comma else (int(high) if high else None)
        if max(least, most or 0) > TOPIC_PATTERN_STATES_MAX or (most is not None and most < least):
            raise self._wrong("a repeat out of bounds")
        return least, most

    def _atom(self) -> _Piece:
        character = self._take()
        if character == "(":
            if self._peek() == "?":
                self._take()
                if self._take() != ":":
                    raise self._wrong("a group of a kind that is not understood")
            inner = self._alternatives()
            if self._take() != ")":
                raise self._wrong("no )")
            return inner
        if character == "[":
            return self._over(self._class())
        if character == ".":
            return self._over(lambda c: c != "\n")
        if character == "\\":
            return self._over(self._escape())
        if character in "*+?{^$":
            raise self._wrong(f"a {character} that is not understood")
        return self._over(lambda c: c == character)

    def _over(self, test: _Test) -> _Piece:
        return lambda after: self._state(test, after)

    def _escape(self) -> _Test:
        character = self._take()
        if character.lower() in _CLASSES:
            test = _CLASSES[character.lower()]
            return test if character.islower() else lambda c: not test(c)
        if character.isalnum():
            raise self._wrong(f"a \\{character} that is not understood")
        return lambda c: c == character

    def _class(self) -> _Test:
        negated = self._peek() == "^"
        if negated:
            self._take()
        tests: list[_Test] = []
        while self._peek() != "]" or not tests:
            tests.append(self._member())
        self._take()
        return lambda c: any(test(c) for test in tests) != negated

    def _member(self) -> _Test:
        character = self._take()
        if character == "\\":
            return self._escape()
        if character == "[":
            raise self._wrong("a class within a class")
        following = self._text[self._at : self._at + 2]
        if len(following) == 2 and following[0] == "-" and following[1] not in "]\\":
            self._take()
            last = self._take()
            if last < character:
                raise self._wrong("a range that goes backwards")
            return lambda c: character <= c <= last
        return lambda c: c == character
