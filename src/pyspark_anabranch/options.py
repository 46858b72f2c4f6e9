"""The options of the data source: one table, from which they are read, checked and described."""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from anabranch.errors import ConfigError, InputError
from anabranch.ids import TopicName
from anabranch.wire.compression import COMPRESSIONS
from pyspark_anabranch.access import Access
from pyspark_anabranch.addresses import admin_beside, admin_url, service_url
from pyspark_anabranch.encrypted_entries import CONSUME, DISCARD, FAIL, FAILURE_ACTIONS
from pyspark_anabranch.limits import READ_WAIT_S, TRIGGER_DELAY_S
from pyspark_anabranch.places import Place
from pyspark_anabranch.row_columns import COLUMNS, COLUMNS_BY_NAME, ENCRYPTION, Column

EARLIEST, LATEST = "earliest", "latest"
ONCE, AT_LEAST_ONCE = "once", "at_least_once"
AUTO, ALWAYS = "auto", "always"
Bound = str | int | Place
"""`earliest`, `latest`, a publish time in ms, or a place."""


@dataclass(frozen=True, slots=True)
class Option:
    """Something that can be chosen."""

    name: str
    used_by: str
    """`read`, `stream`, `write`: whom it concerns, with commas between."""
    default: str
    words: str
    parse: Callable[[str], Any] = str


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"a whole number is wanted, not {text!r}") from None
    if value < 1:
        raise ConfigError(f"a positive number is wanted, not {text!r}")
    return value


def _whole_or_none(text: str) -> int | None:
    return _whole(text) if text else None


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            wanted = f"{', '.join(words[:-1])} or {words[-1]}"
            raise ConfigError(f"{wanted} is wanted, not {text!r}")
        return text

    return parse


def _packing(text: str) -> str:
    if text not in COMPRESSIONS:
        raise ConfigError(f"no compression {text!r}; there are {', '.join(COMPRESSIONS)}")
    return text


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"true or false is wanted, not {text!r}")
    return text.lower() == "true"


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|m|min|h)?", text.strip())
    if found is None:
        raise ConfigError(f"a time such as 500ms, 10s or 15m is wanted, not {text!r}")
    factor = {"ms": 0.001, "s": 1, None: 1, "m": 60, "min": 60, "h": 3600}[found[2]]
    return float(found[1]) * factor


def _private_keys(text: str) -> str | dict[str, str]:
    if not text.lstrip().startswith("{"):
        return text
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}") from None
    for name, path in found.items():
        if not isinstance(path, str):
            raise ConfigError(f"the file of key {name!r} is wanted, not {path!r}")
    return {str(name): path for name, path in found.items()}


def _columns(text: str) -> tuple[Column, ...]:
    if not text:
        return ()
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in COLUMNS_BY_NAME:
            raise ConfigError(f"no column {name!r}; there are {', '.join(COLUMNS_BY_NAME)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice: {text!r}")
    return tuple(COLUMNS_BY_NAME[name] for name in names)


def _bounds(text: str) -> Bound | dict[str, Bound]:
    if not text.lstrip().startswith("{"):
        return parse_bound(text)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}") from None
    return {str(TopicName.parse(name)): parse_bound(str(each)) for name, each in found.items()}


def parse_bound(text: str) -> Bound:
    """Read where something begins or ends.

    Raises:
        ConfigError: if it is none of the forms.
    """
    text = text.strip()
    if text in (EARLIEST, LATEST):
        return text
    if text.isdigit():
        return int(text)
    try:
        return Place.parse(text)
    except InputError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"earliest, latest, a time, or a position ledger:entry:batch is wanted, not {text!r}"
        ) from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def _names(text: str) -> tuple[TopicName, ...]:
    return tuple(TopicName.parse(name.strip()) for name in text.split(",")) if text else ()


_ALL: Final = "read, stream, write"
_READS: Final = "read, stream"
OPTIONS: Final = (
    Option(
        "serviceUrl", _ALL, "",
        "`pulsar://host:port` of any broker, or of several, with commas between",
        service_url,
    ),
    Option(
        "adminUrl", _ALL, "",
        "`http://host:port` of the admin interface; port 8080 of the first broker unless given",
        admin_url,
    ),
    Option("authToken", _ALL, "", "a JSON web token, shown to brokers and the admin interface"),
    Option("topic", _ALL, "", "one topic, with all its partitions", _names),
    Option("topics", _READS, "", "several, with commas between", _names),
    Option(
        "topicsPattern", _READS, "",
        "all topics of a namespace whose full name matches a regular expression, such as "
        "`persistent://public/default/orders-.*`",
    ),
    Option(
        "start", _READS, "",
        "where to begin: earliest, latest, a publish time (ISO 8601, or ms), a position "
        "`ledger:entry:batch`, or JSON of topics and one of these each; earliest for a batch, "
        "latest for a stream",
        _bounds,
    ),
    Option(
        "end", "read", LATEST, "where to stop, in the same forms; what is there is left out",
        _bounds,
    ),
    Option(
        "columns", _READS, "",
        "which columns, with commas between; without `value` no payload leaves the task",
        _columns,
    ),
    Option(
        "filterPushdown", "read", AUTO,
        f"whether conditions that Spark hands down leave out what cannot match: `{AUTO}` where "
        "Spark plans every query by itself, which 4.3 and older do not; with those, "
        f"`{ALWAYS}` is for a DataFrame that is used in one query alone, others over it miss rows",
        _one_of(AUTO, ALWAYS),
    ),
    Option(
        "failOnDataLoss", _READS, "true",
        "whether a query ends when something it has to read was deleted; else it goes on, and "
        "logs what is missing",
        _boolean,
    ),
    Option(
        "lostRanges", _READS, "",
        "a folder, as the driver sees it, for a table of what a query went on without (`topic`, "
        "`start`, `end`, as JSON); wants failOnDataLoss false",
    ),
    Option(
        "maxEntriesPerTask", _READS, str(2**31),
        "splits a partition over several tasks, each with at most so many entries",
        _whole,
    ),
    Option(
        "maxRowsPerTask", _READS, "",
        "the same in rows, cut exactly; the driver has to look at every entry first",
        _whole_or_none,
    ),
    Option(
        "maxBytesPerTask", _READS, "",
        "the same in bytes of entries, or one entry that is larger; the driver looks as well",
        _whole_or_none,
    ),
    Option(
        "maxRowsPerTrigger", "stream", "",
        "a batch has at most so many rows, divided among topics by what waits in them",
        _whole_or_none,
    ),
    Option(
        "maxBytesPerTrigger", "stream", "",
        "a batch has at most so many bytes of entries, or one entry that is larger",
        _whole_or_none,
    ),
    Option(
        "minRowsPerTrigger", "stream", "",
        "a batch is put off until so many rows wait, or maxTriggerDelay has passed",
        _whole_or_none,
    ),
    Option(
        "maxTriggerDelay", "stream", f"{TRIGGER_DELAY_S:g}s",
        "how long minRowsPerTrigger may put a batch off",
        _seconds,
    ),
    Option(
        "subscription", "stream", "",
        "a durable subscription that follows the query: it keeps what is not read from being "
        "deleted, and shows on the broker how far the query is",
    ),
    Option(
        "guarantee", "write", ONCE,
        "`once` keeps rows until all tasks are done and publishes those that count, so that a "
        "job or a batch that fails leaves nothing; `at_least_once` sends them from the tasks at "
        "once",
        _one_of(ONCE, AT_LEAST_ONCE),
    ),
    Option(
        "stagingFolder", "write", "",
        "where a batch write keeps rows until all tasks are done, as tasks and the driver see it; "
        "the folder for temporary files unless given, which only one machine shares with itself. "
        "Streams use their checkpoint",
    ),
    Option("compression", "write", "none", f"of payloads: {', '.join(COMPRESSIONS)}", _packing),
    Option(
        "ledgersUrl", _READS, "",
        "where the broker stores ledgers: `embedded:FOLDER` of a server's data, or "
        "`bookkeeper:zk:HOST:PORT/CHROOT`, as tasks reach it; what is sealed is then read there, "
        "and the broker is asked for the rest alone",
    ),
    Option(
        "ledgersCredentials", _READS, "",
        "a TOML file on the machines of the tasks, with the password of ledgers and credentials "
        "for bookies",
    ),
    Option(
        "metadataCredentials", _READS, "",
        "the same for the metadata store in which the bookies register",
    ),
    Option(
        "indexFolder", _READS, "",
        "a folder, as tasks see it, with the columns of sealed ledgers but `value`: the first "
        "query that wants no payloads fills it, and later ones read there; wants ledgersUrl",
    ),
    Option(
        "decryptionKeys", _READS, "",
        "private keys (RSA, PEM) for messages that were encrypted: a folder with a file "
        "`NAME.pem` for each, or JSON of names and files, as tasks see them",
        _private_keys,
    ),
    Option(
        "cryptoFailureAction", _READS, FAIL,
        f"what becomes of an entry that no key opens: `{FAIL}` ends the query, `{DISCARD}` leaves "
        f"it out, `{CONSUME}` makes it one row with its bytes as they are stored, and adds the "
        "column `encryption`",
        _one_of(*FAILURE_ACTIONS),
    ),
    Option(
        "readTimeout", _READS, f"{READ_WAIT_S:g}s", "how long a task waits for its next entry",
        _seconds,
    ),
)  # fmt: skip
_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_SPARKS_OWN: Final = frozenset({"checkpointlocation"})
"""What Spark itself puts among the options."""


class Options:
    """Options as a user gave them, read and checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Read them.

        Raises:
            ConfigError: naming an option that is unknown, cannot have its value, or is missing.
        """
        self._given = {name.lower(): text for name, text in given.items()}
        for key in self._given:
            if key not in _BY_KEY and key not in _SPARKS_OWN:
                near = difflib.get_close_matches(key, _BY_KEY, 1)
                hint = f"; did you mean {_BY_KEY[near[0]].name}?" if near else ""
                raise ConfigError(f"the anabranch source has no option {key!r}{hint}")
        self._values = {key: self._read(option) for key, option in _BY_KEY.items()}
        if not self["serviceUrl"]:
            raise ConfigError("option serviceUrl is missing: pulsar://host:port of a broker")

    def _read(self, option: Option) -> Any:
        text = self._given.get(option.name.lower(), option.default)
        if option.default == "" == text and option.parse in (_bounds,):
            return None
        try:
            return option.parse(text)
        except InputError as error:
            raise ConfigError(f"option {option.name}: {error}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name.lower()]

    def is_given(self, name: str) -> bool:
        """Whether the user chose it."""
        return name.lower() in self._given

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that were chosen, else all that can have something."""
        chosen: tuple[Column, ...] = self["columns"]
        if chosen:
            return chosen
        return (*COLUMNS, ENCRYPTION) if self["cryptoFailureAction"] == CONSUME else COLUMNS

    @property
    def access(self) -> Access:
        """Where brokers and their admin interface are."""
        brokers = self["serviceUrl"]
        return Access(brokers, self["adminUrl"] or admin_beside(brokers), self["authToken"])

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps what a stream has done; empty for a batch."""
        return self._given.get("checkpointlocation", "")

    def check_use(self, use: str) -> None:
        """Refuse options that do nothing for a batch read, a stream, or a write.

        Raises:
            ConfigError: naming one.
        """
        for key in self._given:
            option = _BY_KEY.get(key)
            if option is not None and use not in option.used_by.split(", "):
                raise ConfigError(f"option {option.name} is for {option.used_by}, not for {use}")

    def check_topics(self) -> None:
        """Refuse anything but one way to name topics, and options that contradict each other.

        Raises:
            ConfigError: naming those that were given.
        """
        ways = ("topic", "topics", "topicsPattern")
        given = [way for way in ways if self.is_given(way)]
        if len(given) != 1:
            raise ConfigError(
                f"exactly one of the options {', '.join(ways)} is wanted, "
                f"not {' and '.join(given) or 'none'}"
            )
        if self["lostRanges"] and self["failOnDataLoss"]:
            raise ConfigError("option lostRanges is of no use unless failOnDataLoss is false")

    def check_limits(self) -> None:
        """Refuse limits of batches that contradict each other, or do nothing.

        Raises:
            ConfigError: naming those that were given.
        """
        least, most = self["minRowsPerTrigger"], self["maxRowsPerTrigger"]
        if least is None and self.is_given("maxTriggerDelay"):
            raise ConfigError("option maxTriggerDelay is of no use without minRowsPerTrigger")
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"option minRowsPerTrigger, {least}, is more than maxRowsPerTrigger, {most}"
            )
