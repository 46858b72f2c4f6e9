"""How `anabranch ledgers verify` ends on bookies: what nobody answered for is not called good."""

import json

import pytest

from anabranch.cli.ledger_checks import print_copies
from anabranch.cli.verdicts import EXIT_CLEAN, EXIT_UNUSABLE, EXIT_VIOLATED, Output
from anabranch.ledgers.bookkeeper.inspection import BadCopy, CheckedCopies, Unreadable

DAMAGE = BadCopy(7, 1, "b:1", "the digest differs")


@pytest.mark.parametrize(
    ("checked", "code", "words"),
    [
        (CheckedCopies(1, 2, 4), EXIT_CLEAN, ""),
        (CheckedCopies(1, 2, 3, lacking=1), EXIT_CLEAN, ""),
        (CheckedCopies(1, 2, 0, unreachable=4), EXIT_UNUSABLE, "nothing could be judged"),
        (CheckedCopies(1, 2, 0, 2, unreachable=2), EXIT_UNUSABLE, "nothing could be judged"),
        (CheckedCopies(1, 2, 2, unreachable=2), EXIT_UNUSABLE, "not everything could be judged"),
        (CheckedCopies(1, 2, 2, 0, 1, [DAMAGE]), EXIT_VIOLATED, "not everything could be judged"),
        (CheckedCopies(1, unreadable=[Unreadable(7, "no magic")]), EXIT_VIOLATED, ""),
    ],
)
def test_the_worst_that_was_found_counts(
    checked: CheckedCopies, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_copies(checked, Output.TEXT) == code
    said = capsys.readouterr().err
    assert words in said
    assert bool(said) == bool(words)
    assert print_copies(checked, Output.JSON) == code
    shown = capsys.readouterr()
    assert json.loads(shown.out)["unreachable"] == checked.unreachable
    assert words in shown.err
