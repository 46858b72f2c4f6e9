"""Where a broker is reached, and the documents that say so in Pulsar's own form. Pure.

None of them holds a time or a load: a broker that starts again writes the very same bytes, and so
takes its places back at once instead of waiting for the end of its old session.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import FormatError

BROKERS: Final = "/loadbalance/brokers"
LEADER: Final = "/loadbalance/leader"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker; what it does not have is empty."""

    broker_id: str
    """Host and port of its web interface, as Pulsar names brokers."""
    service_url: str
    service_url_tls: str = ""
    web_url: str = ""
    web_url_tls: str = ""

    def as_registration(self) -> bytes:
        """The document at which other brokers and Pulsar's tools see that this one lives."""
        return _encode(
            {
                "brokerId": self.broker_id,
                "webServiceUrl": self.web_url or None,
                "webServiceUrlTls": self.web_url_tls or None,
                "pulsarServiceUrl": self.service_url or None,
                "pulsarServiceUrlTls": self.service_url_tls or None,
                "persistentTopicsEnabled": True,
                "nonPersistentTopicsEnabled": True,
                "loadReportType": "LocalBrokerData",
                "protocols": {},
                "advertisedListeners": {},
            }
        )

    def as_owner(self) -> bytes:
        """The document of a bundle that this broker owns."""
        return _encode(
            {
                "brokerId": self.broker_id,
                "nativeUrl": self.service_url or None,
                "nativeUrlTls": self.service_url_tls or None,
                "httpUrl": self.web_url or None,
                "httpUrlTls": self.web_url_tls or None,
                "disabled": False,
                "advertisedListeners": {},
            }
        )

    def as_leader(self) -> bytes:
        """The document of the leader among the brokers."""
        return _encode({"brokerId": self.broker_id, "serviceUrl": self.web_url})


@dataclass(frozen=True, slots=True)
class BundleOwner:
    """Who has a bundle, as its node says."""

    address: BrokerAddress
    disabled: bool = False
    """Whether it is about to give the bundle up."""


def read_registration(data: bytes) -> BrokerAddress:
    """Read what a broker registered with.

    Raises:
        FormatError: if it is no such document.
    """
    found = _decode(data, "registration of a broker")
    return _address(found, "pulsarServiceUrl", "webServiceUrl")


def read_owner(data: bytes) -> BundleOwner:
    """Read who owns a bundle.

    Raises:
        FormatError: if it is no such document.
    """
    found = _decode(data, "owner of a bundle")
    return BundleOwner(_address(found, "nativeUrl", "httpUrl"), bool(found.get("disabled")))


def read_leader(data: bytes) -> str:
    """Read which broker leads; its id.

    Raises:
        FormatError: if it is no such document.
    """
    found = _decode(data, "leader")
    return str(found.get("brokerId") or _host_and_port(str(found.get("serviceUrl") or "")))


def _address(found: dict[str, Any], service: str, web: str) -> BrokerAddress:
    def text(name: str) -> str:
        value = found.get(name)
        if value is not None and not isinstance(value, str):
            raise FormatError(f"{name} of a broker is not a text: {value!r}")
        return value or ""

    service_url, service_url_tls = text(service), text(f"{service}Tls")
    web_url, web_url_tls = text(web), text(f"{web}Tls")
    if not service_url and not service_url_tls:
        raise FormatError(f"a broker without {service} and {service}Tls")
    broker_id = text("brokerId") or _host_and_port(web_url or web_url_tls)
    return BrokerAddress(broker_id, service_url, service_url_tls, web_url, web_url_tls)


def _host_and_port(url: str) -> str:
    return url.partition("://")[2].rstrip("/")


def _encode(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _decode(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise FormatError(f"no document of a {what}: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"no document of a {what}: {data[:80]!r}")
    return found
