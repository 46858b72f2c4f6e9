"""Passwords, tokens and certificates for metadata stores of others: the text of a file. Pure.

They are never part of a URL or of a command, which others can see, and no text made here has one.
"""

import posixpath
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch import limits
from anabranch.errors import ConfigError, FormatError
from anabranch.runtime.network import Tls

FORMAT: Final = "anabranch.metadata-credentials"
VERSION: Final = 1
SCHEMES: Final = ("sasl", "digest")
_TLS_KEYS: Final = ("ca", "certificate", "key")
_PLACE: Final = re.compile(r" \(at [^()]*\)$")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to the stores of others, and whom we trust."""

    identities: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """For ZooKeeper: scheme, and user and password with a colon between them."""
    zookeeper_tls: Tls | None = None
    oxia_token: str | None = field(default=None, repr=False)
    oxia_tls: Tls | None = None


NO_CREDENTIALS: Final = Credentials()


def parse_credentials(file: str, content: bytes) -> Credentials:
    """What a file says; names of other files in it are relative to its own folder.

    Raises:
        FormatError: if it is none of ours, or of another version.
        ConfigError: naming what is wrong, and never a value.
    """
    document = parse_document(file, content, FORMAT, VERSION)
    return _Reader(file).credentials(document)


def parse_document(
    file: str, content: bytes, document_format: str, document_version: int
) -> Mapping[str, Any]:
    """The tables of a file with secrets of a known kind.

    Raises:
        FormatError: if it is of another kind or version.
        ConfigError: if it is no TOML.
    """
    if len(content) > limits.CREDENTIALS_FILE_BYTES_MAX:
        raise ConfigError(f"{file} has more than {limits.CREDENTIALS_FILE_BYTES_MAX} bytes")
    try:
        document = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not TOML: it is no text") from None
    except tomllib.TOMLDecodeError as error:
        # The rest of the message may quote the file.
        place = _PLACE.search(str(error))
        raise ConfigError(f"{file} is not TOML{place.group() if place else ''}") from None
    if document.get("format") != document_format:
        raise FormatError(
            f'{file} holds no credentials: it does not say format = "{document_format}"'
        )
    version = document.get("version")
    if isinstance(version, bool) or version != document_version:
        raise FormatError(
            f"{file} has a version that is not known here: version = {document_version} is"
        )
    return document


class TableReader:
    """Reads the tables of one file, and names what is wrong without saying a value."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._folder = posixpath.dirname(file)

    def tls(
        self, where: str, table: Mapping[str, Any], known: Sequence[str] = _TLS_KEYS
    ) -> Tls | None:
        """The files of a table `tls`; None if there is none."""
        if "tls" not in table:
            return None
        entry = self.table(where, table, "tls")
        self.check_keys(f"{where}tls.", entry, known)
        files = [
            posixpath.join(self._folder, self.text(f"{where}tls.", entry, key))
            if key in entry
            else None
            for key in _TLS_KEYS
        ]
        return Tls(*files)

    def table(self, where: str, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """A table in a table; empty if it is not there."""
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise ConfigError(f"{self._file}: {where}{key} is a table: write [{where}{key}]")
        return value

    def text(self, where: str, table: Mapping[str, Any], key: str) -> str:
        """A text that must be there."""
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self._file}: {where}{key} is missing, empty, or not a text")
        return value

    def check_keys(self, where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
        """Refuse what nobody would read."""
        for key in table:
            if key not in known:
                raise ConfigError(
                    f"{self._file}: unknown key {where}{key}: known are {', '.join(known)}"
                )


class _Reader(TableReader):
    """Reads the tables for metadata stores."""

    def credentials(self, document: Mapping[str, Any]) -> Credentials:
        self.check_keys("", document, ("format", "version", "zookeeper", "oxia"))
        zookeeper = self.table("", document, "zookeeper")
        oxia = self.table("", document, "oxia")
        self.check_keys("zookeeper.", zookeeper, ("identity", "tls"))
        self.check_keys("oxia.", oxia, ("token", "tls"))
        token = self.text("oxia.", oxia, "token") if "token" in oxia else None
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ConfigError(f"{self._file}: oxia.token has characters that no token has")
        return Credentials(
            self._identities(zookeeper.get("identity", [])),
            self.tls("zookeeper.", zookeeper),
            token,
            self.tls("oxia.", oxia, _TLS_KEYS[:1]),
        )

    def _identities(self, entries: object) -> tuple[tuple[str, bytes], ...]:
        name = "zookeeper.identity"
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ConfigError(f"{self._file}: {name} is a list of tables: write [[{name}]]")
        found = []
        for entry in entries:
            self.check_keys(f"{name}.", entry, ("scheme", "user", "password"))
            scheme = self.text(f"{name}.", entry, "scheme")
            if scheme not in SCHEMES:
                raise ConfigError(f"{self._file}: {name}.scheme is one of {', '.join(SCHEMES)}")
            user = self.text(f"{name}.", entry, "user")
            if ":" in user:
                raise ConfigError(f"{self._file}: {name}.user has a colon, which ends a user")
            password = self.text(f"{name}.", entry, "password")
            found.append((scheme, f"{user}:{password}".encode()))
        return tuple(found)
