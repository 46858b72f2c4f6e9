"""What each kind of store holds of a record that is restored into it. Pure."""

from dataclasses import dataclass
from typing import Final


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

    def keeps_version(self, native_version: int) -> bool:
        """Whether a node with this version has it still after `restore`."""
        return self.native_version_max is None or native_version <= self.native_version_max


EVERYTHING: Final = Keeping()
_BY_SCHEME: Final = {
    "zk": Keeping(native_version_max=1000, sequences=False, times=False, access=True),
    "oxia": Keeping(sequences=False, times=False),
}


def keeping_of(url: str) -> Keeping:
    """What the store with this URL holds."""
    return _BY_SCHEME.get(url.partition(":")[0], EVERYTHING)
