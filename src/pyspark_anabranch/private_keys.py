"""Private keys out of files, as the tasks of a query find them on their machines."""

from pathlib import Path

from anabranch.errors import ConfigError
from anabranch.wire.decryption import private_key
from pyspark_anabranch.encrypted_entries import CONSUME, Unlocking
from pyspark_anabranch.options import Options
from pyspark_anabranch.row_columns import ENCRYPTION

_ENDING = ".pem"


def unlocking_of(options: Options) -> Unlocking:
    """Read the keys that a query was given.

    Raises:
        ConfigError: naming a file that is not there, or is no private key.
    """
    files = _files_of(options["decryptionKeys"])
    keys = {name: private_key(name, _content(name, path)) for name, path in files.items()}
    return Unlocking(keys, options["cryptoFailureAction"])


def _files_of(given: str | dict[str, str]) -> dict[str, Path]:
    """Names of keys, and where each is. A name that a producer chose never becomes a path."""
    if not given:
        return {}
    if not isinstance(given, str):
        return {name: Path(path) for name, path in given.items()}
    try:
        found = {path.stem: path for path in Path(given).iterdir() if path.suffix == _ENDING}
    except OSError as error:
        raise ConfigError(f"option decryptionKeys: {error}") from None
    if not found:
        raise ConfigError(f"option decryptionKeys: no file in {given} is called NAME{_ENDING}")
    return found


def _content(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the private key {name!r} cannot be read: {error}") from None


def check_decryption(options: Options) -> None:
    """Refuse options that contradict each other.

    Raises:
        ConfigError: naming them.
    """
    if options["indexFolder"]:
        for name in ("decryptionKeys", "cryptoFailureAction"):
            if options.is_given(name):
                raise ConfigError(
                    f"options indexFolder and {name} do not go together: "
                    "an index would keep in the clear what was encrypted"
                )
    if ENCRYPTION in options.columns and options["cryptoFailureAction"] != CONSUME:
        raise ConfigError(
            f"column {ENCRYPTION.name} is always null unless cryptoFailureAction is {CONSUME}"
        )
