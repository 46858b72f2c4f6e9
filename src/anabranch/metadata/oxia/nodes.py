"""What Oxia keeps of a node, as the contract of a metadata store says it. Pure."""

from typing import Final, NamedTuple

from anabranch.errors import BadVersion
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.oxia.sessions import session_of
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import Condition, Expected, Revision, Stat, Version

_UNWRITTEN: Final = -1
"""In the place of Oxia's number: the root before anybody wrote to it."""


class Found(NamedTuple):
    """A node as it was found; `value` may have been left out."""

    version: Version
    value: bytes = b""
    session: int = NOBODY
    session_id: int | None = None
    identity: str | None = None
    created_ms: int = 0
    modified_ms: int = 0

    @property
    def written(self) -> bool:
        """Whether there is a record of it: there is none of a root that nobody wrote to."""
        return self.version.life != _UNWRITTEN


UNWRITTEN_ROOT: Final = Found(Version(0, 0, _UNWRITTEN))


def version_from(version: pb.Version) -> Version:
    """The token for a state: how often the node was changed, and Oxia's own number for it."""
    return Version(0, version.modifications_count, version.version_id)


def found_from(path: str, answer: pb.GetResponse) -> Found | None:
    """What a look-up found."""
    if answer.status != pb.OK:
        return UNWRITTEN_ROOT if path == ROOT else None
    return found_from_version(answer.version, answer.value)


def found_from_version(version: pb.Version, value: bytes = b"") -> Found:
    """A node by what the server says of its version."""
    owned = version.HasField("session_id")
    return Found(
        version_from(version),
        value,
        session_of(version),
        version.session_id if owned else None,
        version.client_identity if owned else None,
        version.created_timestamp,
        version.modified_timestamp,
    )


def stat_from(path: str, found: Found, revision: Revision, session: int) -> Stat:
    """What a caller with this session may know of a node."""
    return Stat(
        path,
        found.version,
        revision,
        found.created_ms,
        found.modified_ms,
        found.session != NOBODY,
        found.session == session != NOBODY,
    )


def mismatch(path: str, found: Found | None, expected: Expected) -> BadVersion | None:
    """The refusal of a write that expected a node to be otherwise; None if it is as expected."""
    if expected is Condition.ANY:
        return None
    if expected is Condition.ABSENT:
        return None if found is None else BadVersion(path, "the node exists already")
    if found is None:
        return BadVersion(path, f"expected {expected}, there is no node")
    if found.version != expected:
        return BadVersion(path, f"expected {expected}, found {found.version}")
    return None
