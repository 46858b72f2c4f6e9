"""How the results of `anabranch ledgers verify` are shown, and its progress."""

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.verdicts import EXIT_CLEAN, EXIT_UNUSABLE, EXIT_VIOLATED, Output

if TYPE_CHECKING:
    from anabranch.ledgers.bookkeeper.inspection import CheckedCopies
    from anabranch.ledgers.inspection import Checked

_PROGRESS_BYTES: Final = 64 << 20
_PROGRESS_ENTRIES: Final = 10_000


def print_check(checked: "Checked", output: Output) -> int:
    """Show the check of a folder; return the exit code, which says whether something is damaged."""
    if output is Output.JSON:
        print(json.dumps(_as_json(checked), indent=2))
    else:
        for damage in checked.damage:
            print(damage)
        torn = f", a torn tail of {checked.torn_bytes} bytes" if checked.torn_bytes else ""
        print(
            f"{len(checked.damage)} damaged places in {checked.segments} segments, "
            f"{checked.bytes_read:,} bytes, {checked.entries:,} entries{torn}"
        )
    return EXIT_VIOLATED if checked.damage else EXIT_CLEAN


def print_copies(checked: "CheckedCopies", output: Output) -> int:
    """Show the check of ledgers on bookies; return the exit code: damaged, or not judged, or good.

    Lacking copies are not counted here: an entry that no bookie has is among the damage.
    """
    if output is Output.JSON:
        fields = {
            "ledgers": checked.ledgers,
            "entries": checked.entries,
            "copies": checked.copies,
            "lacking": checked.lacking,
            "unreachable": checked.unreachable,
            "unreadable": [
                {"ledger": ledger.ledger_id, "reason": ledger.reason}
                for ledger in checked.unreadable
            ],
            "damage": [
                {
                    "entry": f"{bad.ledger_id}:{bad.entry_id}",
                    "bookie": bad.bookie or None,
                    "detail": bad.detail,
                }
                for bad in checked.damage
            ],
        }
        print(json.dumps(fields, indent=2))
    else:
        for bad in checked.damage:
            print(bad)
        for ledger in checked.unreadable:
            print(ledger.reason)
        print(
            f"{len(checked.damage)} damaged places in {checked.ledgers:,} ledgers, "
            f"{checked.entries:,} entries, {checked.copies:,} good copies; {checked.lacking:,} "
            f"copies are lacking, {checked.unreachable:,} could not be asked for; "
            f"{len(checked.unreadable):,} ledgers cannot be understood"
        )
    if checked.unreachable:
        what = "not everything" if checked.copies or checked.damage else "nothing"
        print(
            f"error: {what} could be judged: {checked.unreachable:,} copies are on bookies that "
            "did not answer; check again once they do",
            file=sys.stderr,
        )
    if checked.damage or checked.unreadable:
        return EXIT_VIOLATED
    return EXIT_UNUSABLE if checked.unreachable else EXIT_CLEAN


def _as_json(checked: "Checked") -> dict[str, Any]:
    return {
        "segments": checked.segments,
        "bytes": checked.bytes_read,
        "entries": checked.entries,
        "torn_bytes": checked.torn_bytes,
        "damage": [
            {"file": d.file, "offset": d.offset, "entry": d.entry or None, "detail": d.detail}
            for d in checked.damage
        ],
    }


class ProgressLine:
    """One line on standard error that is rewritten on a terminal, and rare elsewhere."""

    def __init__(self) -> None:
        self._next = 0

    def show_bytes(self, done: int, total: int) -> None:
        """So many bytes of so many are checked."""
        self._show(
            done, _PROGRESS_BYTES, f"{done / 2**20:,.0f} of {total / 2**20:,.0f} MiB checked"
        )

    def show_entries(self, done: int) -> None:
        """So many entries are checked."""
        self._show(done, _PROGRESS_ENTRIES, f"{done:,} entries checked")

    def _show(self, done: int, step: int, line: str) -> None:
        if done < max(self._next, step):
            return
        self._next = done + step
        end = "" if sys.stderr.isatty() else "\n"
        print(f"\r{line}" if not end else line, end=end, file=sys.stderr, flush=True)
