"""TLS of a port that clients connect to, with certificates that are renewed while it is open."""

import os
import ssl

from anabranch.errors import ConfigError
from anabranch.runtime.network import ServerTls


class ServedTls:
    """A context that new connections are made with; `renew` changes what it holds."""

    def __init__(self, tls: ServerTls) -> None:
        """Raises ConfigError if the files cannot be used."""
        self._tls = tls
        self._seen = self._files()
        self.context = _loaded(tls, _empty(tls))

    def renew(self) -> bool:
        """Load the files again if they have changed; whether they have.

        An authority that is no longer trusted is forgotten with the next start only.

        Raises:
            ConfigError: if they cannot be used; those in use stay.
        """
        now = self._files()
        if now == self._seen:
            return False
        # First into a context of its own: half of a new pair must not come into use.
        _loaded(self._tls, _empty(self._tls))
        _loaded(self._tls, self.context)
        self._seen = now
        return True

    def _files(self) -> list[tuple[int, int, int]]:
        tls = self._tls
        found = []
        for name in (tls.certificate_file, tls.key_file, tls.trust_file):
            if name is None:
                continue
            try:
                status = os.stat(name)
            except OSError as error:
                raise ConfigError(f"TLS file {name} cannot be read: {error.strerror}") from None
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found


def _empty(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.trust_file is not None:
        required = tls.demand_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _loaded(tls: ServerTls, context: ssl.SSLContext) -> ssl.SSLContext:
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
        if tls.trust_file is not None:
            context.load_verify_locations(tls.trust_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (tls.certificate_file, tls.key_file, tls.trust_file)))
        raise ConfigError(f"TLS cannot be set up with {files}: {error}") from None
    return context
