"""Whether the server is alive and well, its figures, and where topics are."""

from typing import Final
from urllib.parse import quote

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from anabranch import __version__
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.served import Served
from anabranch.security import Right
from anabranch.telemetry.metrics import CONTENT_TYPE, render

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
    return Response(render(call.served.metrics()), media_type=CONTENT_TYPE)


async def lookup(call: Call) -> object:
    """Where a topic is served, with the keys that Pulsar's clients expect."""
    authoritative = call.flag("authoritative")
    address = await call.served.locate(call.topic, authoritative=authoritative)
    if not address.is_owner:
        return RedirectResponse(f"{address.http_url}{call.path}?authoritative=true")
    return {
        "brokerUrl": address.broker_url,
        "brokerUrlTls": address.broker_url_tls,
        "httpUrl": address.http_url,
        "httpUrlTls": address.http_url_tls,
        "nativeUrl": address.broker_url,
        "brokerUrlSsl": address.broker_url_tls,
    }


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
)
