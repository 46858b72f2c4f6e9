"""The stamp of a ledger: which storage cluster has it. Pure.

A stamp is written beside the ledger's id by the conditional write that publishes it, as properties
of that place: a ledger of a chain, the cursor that names a ledger, the position of a schema. The
key of the name is Pulsar's (PIP-477). A ledger without a stamp belongs to the origin of the
catalog, for ever; so while there has been one cluster only, nothing is stamped and documents are as
Pulsar writes them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from anabranch.errors import FormatError

CLUSTER_KEY: Final = "_pulsar.bookieClusterName"
EPOCH_KEY: Final = "_anabranch.storageEpoch"
RESERVED_PREFIXES: Final = ("_pulsar.", "_anabranch.")
"""Names of properties that only the system writes."""
_KEYS: Final = (CLUSTER_KEY, EPOCH_KEY)


class Stamp(NamedTuple):
    """Where a ledger was created, and under which epoch of the catalog."""

    cluster: str
    epoch: int
    """0 if it is not known, in documents of others."""


NO_STAMP: Final = Stamp("", 0)


class LedgerPlace(NamedTuple):
    """One ledger: its id says which only together with its stamp."""

    ledger_id: int
    stamp: Stamp


def stamp_in(properties: Mapping[str, str], what: str) -> Stamp:
    """The stamp among properties.

    Raises:
        FormatError: if it is none that anybody writes.
    """
    cluster = properties.get(CLUSTER_KEY)
    epoch = properties.get(EPOCH_KEY)
    if cluster is None:
        if epoch is not None:
            raise FormatError(f"{what} has a property {EPOCH_KEY} but no {CLUSTER_KEY}")
        return NO_STAMP
    if not cluster:
        raise FormatError(f"{what} has an empty property {CLUSTER_KEY}")
    if epoch is None:
        return Stamp(cluster, 0)
    if not (epoch.isascii() and epoch.isdigit() and epoch == str(int(epoch)) and int(epoch)):
        raise FormatError(f"{what} has a property {EPOCH_KEY} that is no epoch: {epoch!r}")
    return Stamp(cluster, int(epoch))


def without_stamp(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are no stamp."""
    return {key: value for key, value in properties.items() if key not in _KEYS}


def stamp_properties(stamp: Stamp) -> dict[str, str]:
    """A stamp as properties; none for no stamp."""
    if not stamp.cluster:
        return {}
    epoch = {EPOCH_KEY: str(stamp.epoch)} if stamp.epoch else {}
    return {CLUSTER_KEY: stamp.cluster, **epoch}


def is_reserved(key: str) -> bool:
    """Whether a property of this name is not for users to write."""
    return key.startswith(RESERVED_PREFIXES)
