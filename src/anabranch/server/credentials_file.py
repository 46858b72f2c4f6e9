"""Reads the files of credentials that `metadata_credentials` and `ledgers_credentials` name."""

import os
import stat
from collections.abc import Callable

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.ledgers.credentials import (
    NO_LEDGER_CREDENTIALS,
    LedgerCredentials,
    parse_ledger_credentials,
)
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials, parse_credentials


def load_credentials(path: str, warn: Callable[[str], None]) -> Credentials:
    """Read those for metadata stores; without the name of a file there are none.

    Args:
        path: the file, or "".
        warn: told in one sentence if other users of the machine can read the file.

    Raises:
        ConfigError: if it cannot be read, or is wrong.
        FormatError: if it is none of ours.
    """
    return parse_credentials(path, read_secret(path, warn)) if path else NO_CREDENTIALS


def load_ledger_credentials(path: str, warn: Callable[[str], None]) -> LedgerCredentials:
    """The same for ledger stores."""
    return (
        parse_ledger_credentials(path, read_secret(path, warn)) if path else NO_LEDGER_CREDENTIALS
    )


def read_secret(path: str, warn: Callable[[str], None]) -> bytes:
    """Read a file that holds secrets.

    Raises:
        ConfigError: if it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(limits.CREDENTIALS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"credentials file {path} cannot be read: {error.strerror or error}"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        warn(f"{path} has secrets and is open to others (mode {mode:03o}): chmod 600 {path}")
    return content
