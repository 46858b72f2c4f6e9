"""What is told of copies of metadata: how far they are, and what came of them."""

import sys
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.metadata_places import print_fields, print_json
from anabranch.cli.progress import Progress, bar
from anabranch.cli.verdicts import Output

if TYPE_CHECKING:
    from anabranch.metadata.transfer.digest import Digest

_IN_WORDS: Final = {
    "times_kept": ("no: the target sets times itself, they are those of the copy", "yes"),
    "verified": ("no: the target was not read back and compared", "yes"),
}
"""What a person must be told either way, and how."""


def digest_fields(digest: "Digest") -> dict[str, Any]:
    """How many nodes, and what they are compared by."""
    return {
        "nodes": digest.nodes,
        "value_bytes": digest.value_bytes,
        "content_digest": digest.content_text,
        "exact_digest": digest.exact_text,
    }


def print_report(fields: dict[str, Any], output: Output) -> None:
    """What came of it: as JSON everything, as text what is not nothing and what was not kept."""
    if output is Output.JSON:
        print_json(fields)
    else:
        print_fields(for_people(fields))


def for_people(fields: dict[str, Any]) -> dict[str, Any]:
    """Without counts of nothing; what was lost or left out is said, never passed over."""
    return {
        name: _IN_WORDS[name][bool(value)] if name in _IN_WORDS else value
        for name, value in fields.items()
        if value or name in _IN_WORDS
    }


class CopyProgress:
    """How far a copy is, on standard error: a bar where the end is known."""

    def __init__(self, line: Progress | None = None) -> None:
        self._line = Progress(sys.stderr) if line is None else line
        self._phase = ""
        self._phase_began_s = 0.0

    def tell(self, phase: str, done: "Digest", whole: int | None = None) -> None:
        """So much of a phase is done, of so many nodes."""
        if phase != self._phase:
            self._phase, self._phase_began_s = phase, self._line.seconds
        rate = done.nodes / max(self._line.seconds - self._phase_began_s, 0.001)
        how_far = f" {bar(done.nodes, whole)}" if whole else ""
        self._line.show(
            f"{phase}:{how_far} {done.nodes:,} nodes, "
            f"{done.value_bytes / 2**20:,.1f} MiB, {rate:,.0f}/s"
        )

    def end(self) -> None:
        """Take the line away."""
        self._line.end()
