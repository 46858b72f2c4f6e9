"""Passwords and certificates for ledger stores of others: the text of a file. Pure.

format = "anabranch.ledgers-credentials"
version = 1
[bookkeeper]
password = "…"                    # of ledgers; those with another one cannot be opened
[bookkeeper.auth]                 # where bookies ask who comes
plugin = "…"
token = "…"
[bookkeeper.sasl]                 # instead of that: where they ask by SASL, for DIGEST-MD5
user = "…"
password = "…"
[bookkeeper.tls]
ca = "ca.pem"                     # and certificate, key if bookies ask for them
"""

from dataclasses import dataclass, field
from typing import Final

from anabranch.errors import ConfigError
from anabranch.metadata.credentials import TableReader, parse_document
from anabranch.runtime.network import Tls

FORMAT: Final = "anabranch.ledgers-credentials"
VERSION: Final = 1
_BOOKKEEPER: Final = "bookkeeper."


@dataclass(frozen=True, slots=True)
class LedgerCredentials:
    """Who we are to bookies, and whom we trust."""

    password: bytes = field(default=b"", repr=False)
    auth: tuple[str, bytes] | None = field(default=None, repr=False)
    """Name of the bookies' authentication plug-in, and what to show it."""
    tls: Tls | None = None
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password, where bookies ask by SASL."""


NO_LEDGER_CREDENTIALS: Final = LedgerCredentials()


def parse_ledger_credentials(file: str, content: bytes) -> LedgerCredentials:
    """What a file says; names of other files in it are relative to its own folder.

    Raises:
        FormatError: if it is none of ours, or of another version.
        ConfigError: naming what is wrong, and never a value.
    """
    document = parse_document(file, content, FORMAT, VERSION)
    reader = TableReader(file)
    reader.check_keys("", document, ("format", "version", "bookkeeper"))
    table = reader.table("", document, "bookkeeper")
    reader.check_keys(_BOOKKEEPER, table, ("password", "auth", "sasl", "tls"))
    password = reader.text(_BOOKKEEPER, table, "password") if "password" in table else ""
    auth = None
    if "auth" in table:
        where = f"{_BOOKKEEPER}auth."
        words = reader.table(_BOOKKEEPER, table, "auth")
        reader.check_keys(where, words, ("plugin", "token"))
        auth = (reader.text(where, words, "plugin"), reader.text(where, words, "token").encode())
    sasl = None
    if "sasl" in table:
        where = f"{_BOOKKEEPER}sasl."
        words = reader.table(_BOOKKEEPER, table, "sasl")
        reader.check_keys(where, words, ("user", "password"))
        sasl = (reader.text(where, words, "user"), reader.text(where, words, "password"))
    if auth is not None and sasl is not None:
        raise ConfigError(f"{file} has bookkeeper.auth and bookkeeper.sasl: a bookie asks for one")
    return LedgerCredentials(password.encode(), auth, reader.tls(_BOOKKEEPER, table), sasl)
