"""How to use a BookKeeper cluster."""

from dataclasses import dataclass, field

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.runtime.network import Tls


@dataclass(frozen=True, slots=True)
class BookKeeperSettings:
    """See the module. What concerns a ledger holds for new ones; others keep what they have."""

    ensemble_size: int = 3
    """Over how many bookies the entries of a ledger are spread."""
    write_quorum: int = 3
    """How many bookies get each entry."""
    ack_quorum: int = 2
    """How many must have it before it counts as durable."""
    digest: DigestType = DigestType.CRC32C
    password: bytes = field(default=b"", repr=False)
    ledgers_root: str = "/ledgers"
    """Where in the metadata store BookKeeper has its own."""
    request_timeout_s: float = limits.BOOKKEEPER_REQUEST_TIMEOUT_S
    connect_timeout_s: float = limits.BOOKKEEPER_CONNECT_TIMEOUT_S
    speculative_read_s: float = limits.BOOKKEEPER_SPECULATIVE_READ_S
    """After this time without an answer a read goes to another bookie too."""
    quorum_wait_s: float = limits.BOOKKEEPER_QUORUM_WAIT_S
    """How long appends wait while too few bookies are there, or while the metadata store cannot be
    told which of them are used instead of others, before the ledger is given up."""
    explicit_lac_s: float = limits.BOOKKEEPER_EXPLICIT_LAC_S
    """How soon bookies are told of the last entry if no other follows it; 0: never."""
    leave_gone_s: float = limits.BOOKKEEPER_LEAVE_GONE_S
    """How long a bookie is not registered before ledgers that nothing is appended to leave it; 0:
    they stay."""
    frame_bytes_max: int = limits.BOOKKEEPER_FRAME_BYTES_MAX
    """The bookies' `nettyMaxFrameSizeBytes`, if that is not Pulsar's."""
    auth: tuple[str, bytes] | None = field(default=None, repr=False)
    """Name of the bookies' authentication plug-in, and what to show it."""
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password for bookies whose plug-in is SASL's DIGEST-MD5."""
    tls: Tls | None = None

    def __post_init__(self) -> None:
        ensemble, write, ack = self.ensemble_size, self.write_quorum, self.ack_quorum
        if not 1 <= ack <= write <= ensemble <= limits.BOOKKEEPER_ENSEMBLE_MAX:
            raise ConfigError(
                f"ensemble {ensemble}, write {write}, ack {ack}: they must be "
                f"1 <= ack <= write <= ensemble <= {limits.BOOKKEEPER_ENSEMBLE_MAX}"
            )
