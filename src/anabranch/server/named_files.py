"""Looks into the files that settings name, so that all that are wrong are told before a start."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from anabranch.errors import ConfigError, FormatError
from anabranch.ledgers.addresses import BOOKKEEPER
from anabranch.ledgers.credentials import NO_LEDGER_CREDENTIALS
from anabranch.metadata.credentials import NO_CREDENTIALS
from anabranch.runtime.network import Tls
from anabranch.runtime.real_tls import ServedTls
from anabranch.security.authentication import BASIC, TOKEN
from anabranch.security.basic import Passwords
from anabranch.security.tokens import TokenKey
from anabranch.server.credentials_file import load_credentials, load_ledger_credentials, read_secret
from anabranch.server.security import server_tls
from anabranch.server.security_settings import words
from anabranch.server.settings import SETTINGS, Settings

T = TypeVar("T")
_TLS_FILES: Final = ("tls_certificate", "tls_key", "tls_trust")


def file_problems(settings: Settings) -> list[str]:
    """One line for each file that a server with these settings reads and cannot use."""
    look = _Look(settings)
    look.at_what_clients_are_judged_by()
    look.at_what_stores_are_shown()
    look.at_tls()
    return look.problems


class _Look:
    """One look at all of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.problems: list[str] = []

    def at_what_clients_are_judged_by(self) -> None:
        settings = self._settings
        chosen = words(settings.authentication)
        # Without any method such a file is a mistake of its own; with another one nobody reads it.
        if not chosen or TOKEN in chosen:
            self._try("token_secret_key", lambda path: TokenKey.shared(_secret(path)))
            self._try("token_public_key", lambda path: TokenKey.public(_secret(path)))
        if not chosen or BASIC in chosen:
            self._try("basic_users", _passwords)

    def at_what_stores_are_shown(self) -> None:
        settings = self._settings
        name = "metadata_credentials"
        metadata = self._try(name, lambda path: load_credentials(path, _tell_nobody))
        metadata = metadata or NO_CREDENTIALS
        urls = (settings.metadata_url, settings.configuration_metadata_url, settings.ledgers_url)
        if any("zk:" in url for url in urls):
            self._at_named_in_turn(name, metadata.zookeeper_tls)
        if any("oxia:" in url for url in urls):
            self._at_named_in_turn(name, metadata.oxia_tls)
        name = "ledgers_credentials"
        ledgers = self._try(name, lambda path: load_ledger_credentials(path, _tell_nobody))
        if settings.ledgers_url.startswith(BOOKKEEPER):
            self._at_named_in_turn(name, (ledgers or NO_LEDGER_CREDENTIALS).tls)

    def _at_named_in_turn(self, name: str, tls: Tls | None) -> None:
        if tls is not None:
            for path in filter(None, (tls.ca_file, tls.certificate_file, tls.key_file)):
                self._note(name, partial(_open, path))

    def at_tls(self) -> None:
        if not self._settings.tls_certificate:
            return
        before = len(self.problems)
        for name in _TLS_FILES:
            self._try(name, _open)
        tls = server_tls(self._settings)
        if tls is not None and tls.key_file and len(self.problems) == before:
            self._note("tls_certificate", lambda: ServedTls(tls))

    def _try(self, name: str, look: Callable[[str], T]) -> T | None:
        """Look at the file of a setting, if it has one; None too if it cannot be used."""
        path = getattr(self._settings, name)
        return self._note(name, lambda: look(path)) if path else None

    def _note(self, name: str, look: Callable[[], T]) -> T | None:
        try:
            return look()
        except (ConfigError, FormatError) as error:
            self.problems.append(f"{SETTINGS[name].flag}: {error}")
            return None


def _secret(path: str) -> bytes:
    return read_secret(path, _tell_nobody)


def _passwords(path: str) -> Passwords:
    return Passwords(_secret(path).decode(errors="replace"), file_name=path)


def _open(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"TLS file {path} cannot be read: {error.strerror or error}") from None


def _tell_nobody(sentence: str) -> None:
    """The start warns of files that others can read."""
    del sentence
