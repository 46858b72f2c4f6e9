"""What each kind of store holds of a record that is restored into it. Pure."""

from dataclasses import dataclass
from typing import Final

from anabranch.metadata.store import Record


@dataclass(frozen=True, slots=True)
class Keeping:
    """What of a record a kind of store holds after `restore`; paths and values always are."""

    native_version_max: int | None = None
    """Larger versions become others; None: all are kept."""
    sequences: bool = True
    """The counters exactly; otherwise they may have become larger."""
    times: bool = True
    indexes: bool = True
    access: bool = False
    path_order: bool = True
    """Whether `export` goes in path order; otherwise parents come first, and no more is known."""
    sequences_count_as_versions: bool = False
    """Whether an empty node's version rises to the number of sequential children it had."""

    def keeps_version(self, record: Record) -> bool:
        """Whether a node has its version still after `restore`."""
        if self.sequences_count_as_versions and not record.value:
            return record.next_sequence <= record.native_version + 1
        return self.native_version_max is None or record.native_version <= self.native_version_max


EVERYTHING: Final = Keeping()
_BY_SCHEME: Final = {
    "zk": Keeping(native_version_max=1000, sequences=False, times=False, access=True),
    "oxia": Keeping(
        sequences=False, times=False, path_order=False, sequences_count_as_versions=True
    ),
}


def keeping_of(url: str) -> Keeping:
    """What the store with this URL holds."""
    return _BY_SCHEME.get(url.partition(":")[0], EVERYTHING)
