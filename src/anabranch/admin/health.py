"""Whether the server is alive and well, its figures, and where topics are."""

import asyncio
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from anabranch import __version__
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.namespaces import layout_of
from anabranch.admin.owners import redirect
from anabranch.admin.served import Served
from anabranch.ownership import BrokerAddress
from anabranch.ownership.bundles import hash_of
from anabranch.security import Right
from anabranch.telemetry.metrics import CONTENT_TYPE, Metric, render

DEGRADED_HEADER: Final = "X-Anabranch-Degraded"
"""Of an answer about health: the reason, in the characters of a URL and blanks."""
_READABLE: Final = " /:;,.=()[]'"


async def health(call: Call) -> Response:
    """200 only if a write was accepted now."""
    served = call.served
    reason = await why_not_healthy(served)
    answer = _ok_unless(reason)
    degraded = served.degraded() if reason is None else None
    if degraded is not None:
        # Pulsar's tools take nothing but "ok" for healthy, and it is.
        answer.headers[DEGRADED_HEADER] = quote(degraded, safe=_READABLE)
    return answer


async def ready(call: Call) -> Response:
    """200 from the end of the start to the beginning of the stop."""
    return _ok_unless(call.served.why_not_ready())


async def version(_: Call) -> Response:
    """The version of this build."""
    return PlainTextResponse(__version__)


async def metrics(call: Call) -> Response:
    """Every figure in Prometheus' text format."""
    return _Figures(call.served.metrics())


class _Figures(Response):
    """Sent as it is written: with many topics the whole page would take long to put together."""

    media_type = CONTENT_TYPE

    def __init__(self, figures: Iterable[Metric]) -> None:
        self._figures = figures
        self.status_code = 200
        self.background = None
        self.init_headers()  # without a body, so that no length is told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        for piece in render(self._figures):
            await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def lookup(call: Call) -> object:
    """Where a topic is served, with the keys that Pulsar's clients expect."""
    authoritative = call.flag("authoritative")
    address = await call.served.locate(call.topic, authoritative=authoritative)
    if not address.is_owner:
        web_url, web_url_tls = address.http_url, address.http_url_tls
        name = urlsplit(web_url or web_url_tls).netloc
        there = BrokerAddress(name, "", "", web_url, web_url_tls)
        raise redirect(call, there, take=True)
    return {
        "brokerUrl": address.broker_url,
        "brokerUrlTls": address.broker_url_tls,
        "httpUrl": address.http_url,
        "httpUrlTls": address.http_url_tls,
        "nativeUrl": address.broker_url,
        "brokerUrlSsl": address.broker_url_tls,
    }


async def bundle_of(call: Call) -> Response:
    """The range of hashes that a topic belongs to."""
    place = hash_of(call.topic)
    bounds = [int(bound, 16) for bound in (await layout_of(call)).boundaries]
    low, high = max(bound for bound in bounds[:-1] if bound <= place), bounds[-1]
    high = min((bound for bound in bounds if bound > place), default=high)
    return PlainTextResponse(f"0x{low:08x}_0x{high:08x}")


async def why_not_healthy(served: Served) -> str | None:
    """Return the reason, None if requests are served and a write was accepted now."""
    return served.why_not_ready() or await served.why_unhealthy()


def _ok_unless(reason: str | None) -> Response:
    return PlainTextResponse("ok") if reason is None else JSONResponse({"reason": reason}, 503)


HEALTH_ENDPOINTS: Final = (
    Endpoint("GET", "/admin/v2/brokers/health", Right.ANYBODY, health, "Whether a write is taken"),
    Endpoint("GET", "/admin/v2/brokers/ready", Right.ANYBODY, ready, "Whether requests are served"),
    Endpoint("GET", "/admin/v2/brokers/version", Right.ANYBODY, version, "The version"),
    Endpoint("GET", "/metrics", Right.ANYBODY, metrics, "Figures for Prometheus"),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        Right.LOOK_UP,
        lookup,
        "Where a topic is served",
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        Right.LOOK_UP,
        bundle_of,
        "The bundle of a topic",
    ),
)
