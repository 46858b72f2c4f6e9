"""The checksummed record log that metadata and ledgers share.

`format` is the bytes, `recovery` reads them back, `files` holds the segments, `journal` appends,
`rewriting` makes a sealed segment smaller.
Records are opaque here; what they mean belongs to the store that writes them.
"""

from anabranch.journal.completions import AppendDone
from anabranch.journal.files import disk_errors
from anabranch.journal.format import RecordPlace, segment_name
from anabranch.journal.journal import Journal
from anabranch.journal.pressure import Pressure
from anabranch.journal.recovery import Replay, list_segments
from anabranch.journal.rewriting import REWRITTEN_BYTES_MIN, SegmentRewriting

__all__ = [
    "REWRITTEN_BYTES_MIN",
    "AppendDone",
    "Journal",
    "Pressure",
    "RecordPlace",
    "Replay",
    "SegmentRewriting",
    "disk_errors",
    "list_segments",
    "segment_name",
]
