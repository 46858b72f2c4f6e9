"""Reads the file of credentials that the setting `metadata_credentials` names."""

import os
import stat
from collections.abc import Callable

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials, parse_credentials


def load_credentials(path: str, warn: Callable[[str], None]) -> Credentials:
    """Read a file; without a name there are no credentials.

    Args:
        path: the file, or "".
        warn: told in one sentence if other users of the machine can read the file.

    Raises:
        ConfigError: if it cannot be read, or is wrong.
        FormatError: if it is none of ours.
    """
    if not path:
        return NO_CREDENTIALS
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
    return parse_credentials(path, content)
