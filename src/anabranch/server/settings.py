"""The one definition of every setting: name, type, default, bounds and words.

Flags, environment variables, the configuration file and the reference page are all derived from
`Settings`; `settings_sources` and `settings_file` read them, `settings_reference` prints the page.
Pure: nothing is read from files or the environment here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, get_type_hints

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.ledgers.addresses import check_ledgers_url
from anabranch.metadata.oxia import address as oxia_address
from anabranch.metadata.served.addresses import DEFAULT_PORT, SCHEME, parse_addresses
from anabranch.metadata.zookeeper.addresses import SCHEME as ZOOKEEPER
from anabranch.metadata.zookeeper.addresses import parse_ensemble
from anabranch.wire.compression import COMPRESSIONS

SettingValue = str | int | float | bool
Check = Callable[[str], str | None]
"""Looks at a text and returns what is wrong with it, or None."""

_SETTING: Final = "setting"
_WILDCARD_HOSTS: Final = ("0.0.0.0", "::", "")
_TRUE_WORDS: Final = ("true", "yes", "on", "1")
_FALSE_WORDS: Final = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything known about one setting."""

    name: str
    kind: type[str] | type[int] | type[float] | type[bool]
    default: SettingValue
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    check: Check | None = None
    own_flag: str = ""
    """For a setting of one command only, where its name would repeat that of the command."""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.own_flag or "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "ANABRANCH_" + self.name.upper()

    @property
    def allowed(self) -> str:
        """The values it may have, in words."""
        if self.choices:
            return " or ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        noun = "a whole number" if self.kind is int else "a number"
        if self.low is None and self.high is None:
            return noun
        if self.high is None:
            return f"{noun}, at least {self.low:g}"
        assert self.low is not None, f"{self.name} has an upper bound only"
        return f"{noun} from {_plain(self.low)} to {_plain(self.high)}"

    def parse(self, text: str) -> SettingValue:
        """Read a value from a flag or variable.

        Raises:
            ValueError: with the allowed values.
        """
        if self.kind is bool:
            word = text.strip().lower()
            if word not in (*_TRUE_WORDS, *_FALSE_WORDS):
                raise ValueError(self._refusal(text))
            return word in _TRUE_WORDS
        if self.kind is str:
            return self.accept(text)
        try:
            return self.accept(self.kind(text))
        except ValueError:
            raise ValueError(self._refusal(text)) from None

    def accept(self, value: object) -> SettingValue:
        """Return a value of the right type and within the bounds.

        Raises:
            ValueError: with the allowed values.
        """
        if self.kind is float and type(value) is int:
            value = float(value)
        # type() and not isinstance(): a bool is an int to Python, but no port.
        if type(value) is not self.kind:
            raise ValueError(self._refusal(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not (self.low is None or value >= self.low):
                raise ValueError(self._refusal(value))
            if not (self.high is None or value <= self.high):
                raise ValueError(self._refusal(value))
            return value
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                raise ValueError(self._refusal(value))
            if self.check is not None and (wrong := self.check(value)) is not None:
                raise ValueError(f"{value!r} {wrong}")
        assert isinstance(value, SettingValue)
        return value

    def _refusal(self, value: object) -> str:
        return f"{value!r} is not {self.allowed}"


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


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


def _setting(
    default: SettingValue,
    help_text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    own_flag: str = "",
) -> Any:
    details = {
        "help": help_text,
        "low": low,
        "high": high,
        "choices": choices,
        "check": check,
        "own_flag": own_flag,
    }
    return field(default=default, metadata={_SETTING: details})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator may choose about a server."""

    data: str = _setting(
        "./data", "Folder that holds everything the server keeps.", check=_not_empty
    )
    host: str = _setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.", check=_host)
    port: int = _setting(
        6650, "Port of the binary protocol; 0 takes a free one.", low=0, high=65535
    )
    web_port: int = _setting(
        8080, "Port of the web interface (admin, health, metrics); 0 takes a free one.",
        low=0, high=65535,
    )  # fmt: skip
    advertised_address: str = _setting(
        "", "Host name that clients are told to connect to; empty means the listening address.",
        check=_host,
    )  # fmt: skip
    cluster: str = _setting("standalone", "Name of the cluster.", check=_name)
    metadata_url: str = _setting(
        "embedded:",
        "Metadata store: `embedded:` is in the data folder, `embedded:FOLDER` elsewhere, "
        "`anabranch://HOST:PORT` is served by `anabranch metadata serve`, "
        "`zk:HOST:PORT,HOST:PORT/CHROOT` is Apache ZooKeeper, "
        "`oxia://HOST:PORT/NAMESPACE` is Oxia (extra `oxia`), "
        "`memory:` forgets everything at the stop.",
        check=_metadata_store,
    )
    metadata_credentials: str = _setting(
        "",
        "TOML file with passwords, tokens and certificates for the metadata store "
        "(see the guide to metadata tools); empty means none.",
    )
    metadata_session_timeout_s: float = _setting(
        limits.METADATA_SESSION_TIMEOUT_S,
        "Seconds after which a metadata store in another process gives this one up for dead.",
        low=limits.METADATA_SESSION_TIMEOUT_S_MIN,
        high=limits.METADATA_SESSION_TIMEOUT_S_MAX,
    )
    metadata_port: int = _setting(
        DEFAULT_PORT,
        "Port on which `anabranch metadata serve` listens; 0 takes a free one.",
        low=0,
        high=65535,
        own_flag="--port",
    )
    ledgers_url: str = _setting(
        "embedded:",
        "Ledger store: `embedded:` is in the data folder, `embedded:FOLDER` elsewhere, "
        "`bookkeeper:?ensemble=3&write=3&ack=2` is Apache BookKeeper, whose bookies register in "
        "the metadata store (`bookkeeper:zk:HOST:PORT/CHROOT?...`: in another one), "
        "`memory:` forgets everything at the stop.",
        check=_ledger_store,
    )
    ledgers_credentials: str = _setting(
        "",
        "TOML file with the password of ledgers, and with tokens and certificates for bookies "
        "(see the guide to ledgers); empty means none.",
    )
    chain_compression: str = _setting(
        "none",
        "How nodes of topics above 16 KiB are compressed (Pulsar: "
        "managedLedgerInfoCompressionType); all but `zlib` need the extra `compression`. "
        "Every form is read, whatever this says.",
        choices=COMPRESSIONS,
    )
    cursor_compression: str = _setting(
        "none",
        "The same for nodes of subscriptions (Pulsar: managedCursorInfoCompressionType).",
        choices=COMPRESSIONS,
    )
    max_message_bytes: int = _setting(
        limits.MESSAGE_BYTES_MAX, "Largest message (or batch) that is accepted, in bytes.",
        low=limits.KIB, high=limits.MESSAGE_BYTES_SETTING_MAX,
    )  # fmt: skip
    keep_alive_interval_s: float = _setting(
        limits.KEEP_ALIVE_INTERVAL_S,
        "Seconds between two pings to a silent client; it is dropped when one stays unanswered.",
        low=1,
        high=3600,
    )
    auto_create_topics: bool = _setting(
        True, "Create a topic when the first producer or consumer asks for it."
    )
    log_level: str = _setting(
        "info", "Least important log lines to write.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "text", "How a log line is written to standard error.", choices=("text", "json")
    )

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
        assert _SETTING in item.metadata, f"{item.name} is defined without words"
        setting = Setting(
            item.name, kinds[item.name], kinds[item.name](item.default), **item.metadata[_SETTING]
        )
        assert setting.accept(setting.default) == setting.default
        described[item.name] = setting
    return described


SETTINGS: Final = _describe_all()
"""Every setting by name, in the order of their definition."""
