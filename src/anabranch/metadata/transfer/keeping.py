"""What each kind of store holds of a record that is restored into it. Pure."""

from dataclasses import dataclass
from typing import Final

from anabranch import limits
from anabranch.metadata import access_rights
from anabranch.metadata.oxia import address as oxia_address
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import Record
from anabranch.metadata.zookeeper import addresses as zookeeper_addresses
from anabranch.metadata.zookeeper.addresses import Ensemble
from anabranch.metadata.zookeeper.naming import is_hidden

_OPERATION_BYTES: Final = 256
"""What one write takes besides path, value and access rights, generously."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What of a record a kind of store holds after `restore`.

    Path and value are always held, or the record is refused as a whole: see `why_not`.
    """

    native_version_max: int | None = None
    """Larger versions become others; None: all are kept."""
    sequences: bool = True
    """The counters exactly; otherwise they may have become larger."""
    times: bool = True
    indexes: bool = True
    access: bool = False
    path_order: bool = True
    """Whether `export` goes in path order; otherwise parents come first, and no more is known."""
    one_moment: bool = True
    """Whether `export` gives all nodes as of one moment; otherwise each as of its turn."""
    sequences_count_as_versions: bool = False
    """Whether an empty node's version rises to the number of sequential children it had."""

    ensemble: Ensemble | None = None
    """The servers of ZooKeeper, if it is one: they have limits that other stores have not."""

    @property
    def refuses_some(self) -> bool:
        """Whether there are records that other stores hold and this one does not."""
        return self.ensemble is not None

    def why_not(self, record: Record) -> str | None:
        """Why a store cannot hold a record at all; None if it can."""
        return None if self.ensemble is None else _why_not_on_zookeeper(self.ensemble, record)

    def version_after(self, record: Record) -> int:
        """The version that a node has after `restore`."""
        version = record.native_version
        if self.sequences_count_as_versions and not record.value:
            return max(version, record.next_sequence - 1)
        if self.native_version_max is None or version <= self.native_version_max:
            return version
        return 1 if record.path == ROOT else 0

    def keeps_version(self, record: Record) -> bool:
        """Whether a node has its version still after `restore`."""
        return self.version_after(record) == record.native_version

    def sequence_after(self, record: Record) -> int:
        """The next sequence number that an export tells of a node after `restore`, or less."""
        version = self.version_after(record)
        if self.sequences_count_as_versions and version and not record.value:
            return max(record.next_sequence, version + 1)
        return record.next_sequence

    @property
    def sequences_may_grow(self) -> bool:
        """Whether `sequence_after` is only the least: other children count, too."""
        return not self.sequences and not self.sequences_count_as_versions


EVERYTHING: Final = Keeping()
_OXIA: Final = Keeping(
    sequences=False,
    times=False,
    path_order=False,
    one_moment=False,
    sequences_count_as_versions=True,
)


def keeping_of(url: str) -> Keeping:
    """What the store with this URL holds.

    Raises:
        ConfigError: if the URL is wrong.
    """
    scheme = url.partition(":")[0]
    if scheme == zookeeper_addresses.SCHEME:
        return Keeping(
            native_version_max=limits.ZOOKEEPER_RESTORED_VERSION_MAX,
            sequences=False,
            times=False,
            access=True,
            one_moment=False,
            ensemble=zookeeper_addresses.parse_ensemble(url),
        )
    return _OXIA if scheme == oxia_address.SCHEME else EVERYTHING


def _why_not_on_zookeeper(ensemble: Ensemble, record: Record) -> str | None:
    path = record.path
    if not path.isascii() and max(path) > "\uffff":
        return "ZooKeeper takes no path with characters above U+FFFF"
    if is_hidden(path, at_top=ensemble.chroot == ROOT):
        return "the name is reserved in a store on ZooKeeper"
    if record.next_sequence > limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX:
        return (
            f"its next sequence number {record.next_sequence} is above the "
            f"{limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX} that can be restored to ZooKeeper"
        )
    if any(map(access_rights.hides_password, record.access)):
        return (
            "its access rights were read by somebody who may not see them whole: read them as "
            "somebody who may administer the node, or leave them out (export.acl=skip)"
        )
    needed = _request_bytes(ensemble, record)
    if needed > ensemble.request_bytes_max:
        return (
            f"with path and all it needs a request of {needed} bytes, ZooKeeper takes "
            f"{ensemble.request_bytes_max}: raise jute.maxbuffer there and in the URL"
        )
    return None


def _request_bytes(ensemble: Ensemble, record: Record) -> int:
    """The largest request that a record is written with."""
    path_bytes = len(ensemble.chroot.encode()) + len(record.path.encode())
    needed = len(record.value) + path_bytes + _OPERATION_BYTES
    for right in record.access:
        needed += 12 + len(right.scheme.encode()) + len(right.identity.encode())
    if record.indexes:
        # They are in a node whose name is the path with every byte escaped, at worst.
        needed += 3 * path_bytes + _OPERATION_BYTES
        needed += sum(8 + len(key.index.encode()) + len(key.key.encode()) for key in record.indexes)
    return needed
