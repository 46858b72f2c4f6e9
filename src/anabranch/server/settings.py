"""The one definition of every setting: name, type, default, bounds and words.

Flags, environment variables, the configuration file and the reference page are all derived from
`Settings`; `settings_sources` and `settings_file` read them, `settings_reference` prints the page.
Pure: nothing is read from files or the environment here.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, get_type_hints

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.ledgers.addresses import check_ledgers_url
from anabranch.metadata.oxia import address as oxia_address
from anabranch.metadata.served.addresses import DEFAULT_PORT, SCHEME, parse_addresses
from anabranch.metadata.zookeeper.addresses import SCHEME as ZOOKEEPER
from anabranch.metadata.zookeeper.addresses import parse_ensemble
from anabranch.server.policy_settings import PolicySettings
from anabranch.server.security_settings import SecuritySettings
from anabranch.server.setting import SETTING, Setting, SettingValue, setting

__all__ = ["SETTINGS", "Setting", "SettingValue", "Settings"]

_COMPRESSIONS: Final = ("none", "lz4", "zlib", "zstd", "snappy")
"""Those of the protocol, whose modules are slow to load for a command that only asks for help."""
_WILDCARD_HOSTS: Final = ("0.0.0.0", "::", "")


def _not_empty(text: str) -> str | None:
    return None if text.strip() else "is empty"


def _name(text: str) -> str | None:
    if text and all(c.isascii() and (c.isalnum() or c in "-_.") for c in text):
        return None
    return "may have letters, digits, '-', '_' and '.' only"


def _host(text: str) -> str | None:
    if text.strip() != text or "/" in text or "://" in text:
        return "is not a host name or address (no scheme, no port, no blanks)"
    return None


def _store(text: str) -> str | None:
    if text == "memory:" or text.startswith("embedded:"):
        return None
    return "is not memory:, embedded: or embedded:FOLDER"


def _ledger_store(text: str) -> str | None:
    try:
        check_ledgers_url(text)
    except ConfigError as error:
        return f"is wrong: {error}"
    return None


def _metadata_store(text: str) -> str | None:
    parsers: dict[str, Callable[[str], object]] = {
        SCHEME: parse_addresses,
        ZOOKEEPER: parse_ensemble,
        oxia_address.SCHEME: oxia_address.parse_address,
    }
    parse = parsers.get(text.partition(":")[0]) if ":" in text else None
    if parse is None:
        wrong = _store(text)
        return wrong and (
            f"{wrong}, nor {SCHEME}://HOST:PORT, nor {ZOOKEEPER}:HOST:PORT/CHROOT, "
            f"nor {oxia_address.SCHEME}://HOST:PORT/NAMESPACE"
        )
    try:
        parse(text)
    except ConfigError as error:
        return f"is wrong: {error}"
    return None


def _configuration_store(text: str) -> str | None:
    if not text:
        return None
    if _store(text) is None:
        return "is for one process alone: give a store that all servers of the cluster reach"
    return _metadata_store(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(SecuritySettings, PolicySettings):
    """What an operator may choose about a server."""

    data: str = setting(
        "./data", "Folder that holds everything the server keeps.", check=_not_empty
    )
    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.", check=_host)
    port: int = setting(6650, "Port of the binary protocol; 0 takes a free one.", low=0, high=65535)
    web_port: int = setting(
        8080, "Port of the web interface (admin, health, metrics); 0 takes a free one.",
        low=0, high=65535,
    )  # fmt: skip
    advertised_address: str = setting(
        "", "Host name that clients are told to connect to; empty means the listening address.",
        check=_host,
    )  # fmt: skip
    cluster: str = setting("standalone", "Name of the cluster.", check=_name)
    metadata_url: str = setting(
        "embedded:",
        "Metadata store: `embedded:` is in the data folder, `embedded:FOLDER` elsewhere, "
        "`anabranch://HOST:PORT` is served by `anabranch metadata serve`, "
        "`zk:HOST:PORT,HOST:PORT/CHROOT` is Apache ZooKeeper, "
        "`oxia://HOST:PORT/NAMESPACE` is Oxia (extra `oxia`), "
        "`memory:` forgets everything at the stop.",
        check=_metadata_store,
    )
    configuration_metadata_url: str = setting(
        "",
        "Configuration store, which several clusters can share, for clusters, tenants, policies of "
        "namespaces and numbers of partitions (Pulsar: configurationMetadataStoreUrl): a URL as of "
        "the metadata store, of one that others reach. Empty, or the same URL: they are in the "
        "metadata store.",
        check=_configuration_store,
    )
    metadata_credentials: str = setting(
        "",
        "TOML file with passwords, tokens and certificates for the metadata store "
        "(see the guide to metadata tools); empty means none.",
    )
    metadata_session_timeout_s: float = setting(
        limits.METADATA_SESSION_TIMEOUT_S,
        "Seconds after which a metadata store in another process gives this one up for dead.",
        low=limits.METADATA_SESSION_TIMEOUT_S_MIN,
        high=limits.METADATA_SESSION_TIMEOUT_S_MAX,
    )
    metadata_migration_targets: str = setting(
        "",
        "URLs of the metadata stores by which the present one may be replaced, with spaces "
        "between them; a request for any other is refused before anybody is connected to. "
        "Experimental: not for a cluster that is needed.",
    )
    metadata_migration_spark: str = setting(
        "",
        "Master of Spark, such as `local[2,4]` or a URL, whose tasks may compare the two stores "
        "while one replaces the other; empty means none. Needs the extra `spark`.",
    )
    metadata_port: int = setting(
        DEFAULT_PORT,
        "Port on which `anabranch metadata serve` listens; 0 takes a free one.",
        low=0,
        high=65535,
        own_flag="--port",
    )
    ledgers_url: str = setting(
        "embedded:",
        "Ledger store: `embedded:` is in the data folder, `embedded:FOLDER` elsewhere, "
        "`bookkeeper:?ensemble=3&write=3&ack=2` is Apache BookKeeper, whose bookies register in "
        "the metadata store (`bookkeeper:zk:HOST:PORT/CHROOT?...`: in another one), "
        "`memory:` forgets everything at the stop.",
        check=_ledger_store,
    )
    ledgers_credentials: str = setting(
        "",
        "TOML file with the password of ledgers, and with tokens and certificates for bookies "
        "(see the guide to ledgers); empty means none.",
    )
    chain_compression: str = setting(
        "none",
        "How nodes of topics above 16 KiB are compressed (Pulsar: "
        "managedLedgerInfoCompressionType); all but `zlib` need the extra `compression`. "
        "Every form is read, whatever this says.",
        choices=_COMPRESSIONS,
    )
    cursor_compression: str = setting(
        "none",
        "The same for nodes of subscriptions (Pulsar: managedCursorInfoCompressionType).",
        choices=_COMPRESSIONS,
    )
    max_message_bytes: int = setting(
        limits.MESSAGE_BYTES_MAX, "Largest message (or batch) that is accepted, in bytes.",
        low=limits.KIB, high=limits.MESSAGE_BYTES_SETTING_MAX,
    )  # fmt: skip
    keep_alive_interval_s: float = setting(
        limits.KEEP_ALIVE_INTERVAL_S,
        "Seconds between two pings to a silent client; it is dropped when one stays unanswered.",
        low=1,
        high=3600,
    )
    connections_max: int = setting(
        0,
        "Client connections at a time, further ones are refused; 0 means any number "
        "(Pulsar: brokerMaxConnections).",
        low=0,
        high=10_000_000,
    )
    connections_per_host_max: int = setting(
        0, "The same for one address (Pulsar: brokerMaxConnectionsPerIp).", low=0, high=10_000_000
    )
    topic_metrics: bool = setting(
        True,
        "Whether each topic and subscription has figures of its own; else they are added up by "
        "namespace (Pulsar: exposeTopicLevelMetricsInPrometheus).",
    )
    log_level: str = setting(
        "info", "Least important log lines to write.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = setting(
        "text", "How a log line is written to standard error.", choices=("text", "json")
    )

    @property
    def has_configuration_store(self) -> bool:
        """Whether clusters, tenants and policies are not in the metadata store."""
        return self.configuration_metadata_url not in ("", self.metadata_url)

    @property
    def reachable_host(self) -> str:
        """The host name to put into addresses that clients are given."""
        if self.advertised_address:
            return self.advertised_address
        return "127.0.0.1" if self.host in _WILDCARD_HOSTS else self.host


def _describe_all() -> dict[str, Setting]:
    kinds = get_type_hints(Settings)
    described = {}
    for item in fields(Settings):
        assert SETTING in item.metadata, f"{item.name} is defined without words"
        found = Setting(
            item.name, kinds[item.name], kinds[item.name](item.default), **item.metadata[SETTING]
        )
        assert found.accept(found.default) == found.default
        described[item.name] = found
    # Those of security are inherited, and come last on every page.
    inherited = [item.name for kind in (PolicySettings, SecuritySettings) for item in fields(kind)]
    return {n: described[n] for n in (*(n for n in described if n not in inherited), *inherited)}


SETTINGS: Final = _describe_all()
"""Every setting by name, in the order of their definition."""
