"""What a drill is: a program that is told a size and prints a verdict. `drills` has all of them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

DRILL_RECORD: Final = "tests/drills/record.tsv"
DRILL_COLUMNS: Final = ("drill", "digest", "size", "seconds", "result", "figures")
PASSED: Final = "passed"


@dataclass(frozen=True, slots=True)
class Drill:
    """A long run, and its size in full and in small."""

    name: str
    words: str
    module: str
    arguments: tuple[str, ...]
    """With {size} where it belongs, and {start} if the drill can go on where it was stopped."""
    full: int
    small: int
    parts: tuple[str, ...] = ()
    """Of which some can be asked for, all of one size; the drill is told by `parts_option`."""
    parts_option: str = ""

    def of_parts(self, names: Sequence[str]) -> "Drill":
        """The drill with some of its parts only; recorded under a name of its own."""
        words = ",".join(names)
        return replace(
            self,
            name=f"{self.name}:{words}",
            arguments=(*self.arguments, self.parts_option, words),
            full=self.full // len(self.parts) * len(names),
        )

    @property
    def goes_on(self) -> bool:
        """Whether sizes of several runs add up."""
        return "{start}" in self.arguments

    def command(self, size: int, start: int) -> list[str]:
        """What starts it."""
        given = {"{size}": str(size), "{start}": str(start)}
        arguments = [given.get(argument, argument) for argument in self.arguments]
        return [sys.executable, "-m", self.module, *arguments]
