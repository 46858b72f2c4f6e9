"""Certificates of clients: the common name of a verified one is the role."""

from anabranch.errors import NotAuthenticated
from anabranch.security.authentication import TLS, Evidence
from anabranch.security.identity import Identity


class Certificates:
    """The method `tls`."""

    name = TLS

    def identify(self, evidence: Evidence) -> Identity:
        """See `Method.identify`."""
        if not evidence.certificate:
            raise NotAuthenticated("the client has shown no certificate")
        for parts in evidence.certificate.get("subject", ()):
            for name, value in parts:
                if name == "commonName" and value:
                    return Identity(str(value), TLS)
        raise NotAuthenticated("the client's certificate has no common name")
