"""What an operator may choose about a broker. Nothing is read from files or environment here."""

from dataclasses import dataclass, field

from anabranch import limits
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
    policies: PolicyDefaults = field(default_factory=PolicyDefaults)
    """What counts where neither namespace nor topic says anything."""
    policy_check_interval_s: float = POLICY_CHECK_INTERVAL_S
    """Between two looks at what only time brings: expiry, quotas, topics nobody uses."""
    creates_defaults: bool = True
    """Whether the cluster and its default tenant and namespace are created where missing."""
