"""What is told of copies of metadata: how far they are, and what came of them."""

import sys
from typing import TYPE_CHECKING, Any

from anabranch.cli.metadata_places import print_fields, print_json
from anabranch.cli.progress import Progress, bar
from anabranch.cli.verdicts import Output

if TYPE_CHECKING:
    from anabranch.metadata.transfer.digest import Digest


def digest_fields(digest: "Digest") -> dict[str, Any]:
    """How many nodes, and what they are compared by."""
    return {
        "nodes": digest.nodes,
        "value_bytes": digest.value_bytes,
        "content_digest": digest.content_text,
        "exact_digest": digest.exact_text,
    }


def print_report(fields: dict[str, Any], output: Output) -> None:
    """What came of it: as JSON everything, as text what is not nothing."""
    if output is Output.JSON:
        print_json(fields)
    else:
        print_fields({name: value for name, value in fields.items() if value})


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
