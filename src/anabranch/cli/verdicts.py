"""What the commands that judge have in common: how they print, refuse and end."""

import sys
from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from anabranch.verify.verdict import Status

EXIT_CLEAN = 0
EXIT_VIOLATED = 1
EXIT_UNUSABLE = 2


class Output(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option(help="How to print the verdict.")]


def refuse(error: Exception) -> NoReturn:
    """End because the input cannot be used or the server not be reached."""
    print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(EXIT_UNUSABLE) from None


def exit_code(found: Collection["Status"]) -> int:
    """The code for what was found: the worst counts."""
    from anabranch.verify.verdict import Status

    if Status.VIOLATED in found:
        return EXIT_VIOLATED
    return EXIT_UNUSABLE if Status.INCOMPLETE in found else EXIT_CLEAN
