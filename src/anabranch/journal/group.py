"""What one write and one sync carry."""

from anabranch.journal.completions import AppendDone
from anabranch.journal.format import MARK_BYTES, encode_mark
from anabranch.runtime.network import Buffer


class Group:
    """A mark and the records behind it; filled by the journal until it is written."""

    __slots__ = ("buffers", "dones", "end", "segment", "size", "sync")

    def __init__(self, segment: int, offset: int, synced: int, *, sync: bool) -> None:
        self.segment = segment
        self.end = offset + MARK_BYTES
        self.size = 0
        self.buffers: list[Buffer] = [encode_mark(segment, offset, synced)]
        self.dones: list[AppendDone] = []
        self.sync = sync
