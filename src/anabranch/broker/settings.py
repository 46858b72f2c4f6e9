"""What an operator may choose about a broker. Nothing is read from files or environment here."""

from dataclasses import dataclass

from anabranch import limits


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker's share of the server's settings."""

    cluster: str = "standalone"
    service_url: str = "pulsar://127.0.0.1:6650"
    """The address given to clients that look up a topic."""
    service_url_tls: str = ""
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    keep_alive_interval_s: float = limits.KEEP_ALIVE_INTERVAL_S
    auto_create_topics: bool = True
    creates_defaults: bool = True
    """Whether the cluster and its default tenant and namespace are created where missing."""
