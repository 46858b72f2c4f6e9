"""The checksummed record log that metadata and ledgers share.

`format` is the bytes, `recovery` reads them back, `files` holds the segments, `journal` appends.
Records are opaque here; what they mean belongs to the store that writes them.
"""

from anabranch.journal.completions import AppendDone
from anabranch.journal.files import disk_errors
from anabranch.journal.format import RecordPlace, segment_name
from anabranch.journal.journal import Journal
from anabranch.journal.recovery import Replay, list_segments

__all__ = [
    "AppendDone",
    "Journal",
    "RecordPlace",
    "Replay",
    "disk_errors",
    "list_segments",
    "segment_name",
]
