"""What an operator may choose about a broker. Nothing is read from files or environment here."""

from dataclasses import dataclass, field

from anabranch import limits
from anabranch.metadata.counters import Numbering
from anabranch.policies.effective import PolicyDefaults
from anabranch.policies.limits import POLICY_CHECK_INTERVAL_S


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker's share of the server's settings."""

    cluster: str = "standalone"
    service_url: str = "pulsar://127.0.0.1:6650"
    """The address given to clients that look up a topic."""
    service_url_tls: str = ""
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    keep_alive_interval_s: float = limits.KEEP_ALIVE_INTERVAL_S
    connections_max: int = 0
    connections_per_host_max: int = 0
    """0 means any number, of both."""
    policies: PolicyDefaults = field(default_factory=PolicyDefaults)
    """What counts where neither namespace nor topic says anything."""
    policy_check_interval_s: float = POLICY_CHECK_INTERVAL_S
    """Between two looks at what only time brings: expiry, quotas, topics nobody uses."""
    numbering: Numbering = Numbering.BY_CHILDREN
    """How Pulsar's brokers on these metadata number themselves."""
    creates_defaults: bool = True
    """Whether the cluster and its default tenant and namespace are created where missing."""

    @property
    def frame_bytes_max(self) -> int:
        """Of a frame from a client that is known."""
        return self.message_bytes_max + limits.FRAME_PADDING_BYTES
