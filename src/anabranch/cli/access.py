"""Who the user of a command is: the file that `--access` names."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.client import Credentials, Tls

_FILE_BYTES_MAX: Final = 64 * 1024
_FILES: Final = ("token_file", "tls_trust", "tls_certificate", "tls_key")
_KEYS: Final = (
    "token", "token_file", "user", "password", "tls_trust", "tls_certificate", "tls_key",
)  # fmt: skip

AccessOption = Annotated[
    str,
    typer.Option(
        "--access",
        envvar="ANABRANCH_ACCESS",
        help="TOML file that says who you are: token, token_file, user and password, tls_trust, "
        "tls_certificate and tls_key. Names of files are relative to its folder.",
        show_default=False,
    ),
]


class Access:
    """Who the user of a command is, as a file says it."""

    def __init__(self, credentials: "Credentials | None", tls: "Tls | None") -> None:
        self.credentials = credentials
        self.tls = tls


def load_access(name: str) -> Access:
    """Read the file of `--access`; "" for none. Files it names are relative to its own folder.

    Raises:
        ConfigError: if it cannot be read, or says something else.
    """
    from anabranch.client import Basic, Tls, Token

    said = _read_access(name) if name else {}
    credentials: Credentials | None = None
    if "token" in said or "token_file" in said:
        credentials = Token(said.get("token") or _text_of(said["token_file"]))
    elif "user" in said:
        credentials = Basic(said["user"], said.get("password", ""))
    tls = None
    if said.keys() & {"tls_trust", "tls_certificate", "tls_key"}:
        tls = Tls(said.get("tls_trust"), said.get("tls_certificate"), said.get("tls_key"))
    return Access(credentials, tls)


def _read_access(name: str) -> dict[str, str]:
    try:
        said = tomllib.loads(_text_of(name))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--access {name}: no TOML: {error}") from None
    for key, value in said.items():
        if key not in _KEYS:
            raise ConfigError(f"--access {name}: unknown key {key!r}; known: {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"--access {name}: {key} has to be a text")
    folder = Path(name).parent
    return {key: str(folder / value) if key in _FILES else value for key, value in said.items()}


def _text_of(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror or error}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{name} has more than {_FILE_BYTES_MAX} bytes")
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not UTF-8 text") from None
