"""The web interface as an ASGI app: health, metrics, and what clients ask over HTTP.

The app knows the server through `Served` only, so it answers the same under a web server and when
it is called in process by the simulation. Every error is JSON: {"reason": "…"}.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from anabranch import __version__
from anabranch.errors import AnabranchError, InvalidName, NotFound
from anabranch.ids import TOPIC_DOMAINS, TopicName
from anabranch.telemetry.logs import get_logger
from anabranch.telemetry.metrics import CONTENT_TYPE, Metric, render


@dataclass(frozen=True, slots=True)
class TopicAddress:
    """Where a topic is served."""

    broker_url: str
    broker_url_tls: str
    """Empty where there is no such port; clients cannot bear a missing one."""
    http_url: str
    http_url_tls: str
    is_owner: bool = True
    """If not, that broker is to be asked, and takes the topic."""


DEGRADED_HEADER: Final = "X-Anabranch-Degraded"
"""Of an answer about health: the reason, in the characters of a URL and blanks."""
_READABLE: Final = " /:;,.=()[]'"


class Served(Protocol):
    """What the web interface asks of the server it belongs to."""

    def why_not_ready(self) -> str | None:
        """Return the reason, or None while requests are served."""
        ...

    async def why_unhealthy(self) -> str | None:
        """Return the reason, or None if a write is accepted right now."""
        ...

    def degraded(self) -> str | None:
        """Return what does not work as it should though requests are served, or None."""
        ...

    async def locate(self, topic: TopicName, *, authoritative: bool) -> TopicAddress:
        """Return where a topic is served; `authoritative`: here, if nowhere else.

        Raises:
            NotFound: if its namespace does not exist.
        """
        ...

    async def partitions_of(self, topic: TopicName) -> int:
        """Return how many partitions a topic has, 0 if it is not partitioned."""
        ...

    def metrics(self) -> Iterable[Metric]:
        """Return every figure there is."""
        ...


class WebInterface:
    """The handlers; `app` is the whole as one ASGI app."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._logger = get_logger("web")
        topic_path = "{tenant}/{namespace}/{topic:path}"
        routes: list[BaseRoute] = [
            Route("/admin/v2/brokers/health", self.health),
            Route("/admin/v2/brokers/ready", self.ready),
            Route("/admin/v2/brokers/version", self.version),
            Route("/metrics", self.metrics),
            Route(f"/lookup/v2/topic/{{domain}}/{topic_path}", self.lookup),
            Route(f"/admin/v2/{{domain}}/{topic_path}/partitions", self.partitions),
        ]
        self.app = Starlette(
            routes=routes,
            exception_handlers={
                HTTPException: self._refused,
                InvalidName: self._bad_name,
                NotFound: self._not_found,
                AnabranchError: self._failed,
            },
        )

    async def health(self, _: Request) -> Response:
        """200 only if a write was accepted now."""
        reason = self._served.why_not_ready() or await self._served.why_unhealthy()
        answer = _ok_unless(reason)
        degraded = self._served.degraded() if reason is None else None
        if degraded is not None:
            # Pulsar's tools take nothing but "ok" for healthy, and it is.
            answer.headers[DEGRADED_HEADER] = quote(degraded, safe=_READABLE)
        return answer

    async def ready(self, _: Request) -> Response:
        """200 from the end of the start to the beginning of the stop."""
        return _ok_unless(self._served.why_not_ready())

    async def version(self, _: Request) -> Response:
        """The version of this build."""
        return PlainTextResponse(__version__)

    async def metrics(self, _: Request) -> Response:
        """Every figure in Prometheus' text format."""
        return Response(render(self._served.metrics()), media_type=CONTENT_TYPE)

    async def lookup(self, request: Request) -> Response:
        """Where a topic is served, with the keys that Pulsar's clients expect."""
        authoritative = request.query_params.get("authoritative", "").lower() == "true"
        address = await self._served.locate(_topic_in(request), authoritative=authoritative)
        if not address.is_owner:
            return RedirectResponse(f"{address.http_url}{request.url.path}?authoritative=true")
        return JSONResponse(
            {
                "brokerUrl": address.broker_url,
                "brokerUrlTls": address.broker_url_tls,
                "httpUrl": address.http_url,
                "httpUrlTls": address.http_url_tls,
                "nativeUrl": address.broker_url,
                "brokerUrlSsl": address.broker_url_tls,
            }
        )

    async def partitions(self, request: Request) -> Response:
        """How many partitions a topic has."""
        count = await self._served.partitions_of(_topic_in(request))
        return JSONResponse({"partitions": count, "deleted": False})

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reason = error.detail
        if error.status_code == 404:
            reason = f"nothing is served at {request.url.path}"
        elif error.status_code == 405:
            reason = f"{request.method} is not possible at {request.url.path}"
        return JSONResponse({"reason": reason}, error.status_code, headers=error.headers)

    async def _bad_name(self, _: Request, error: Exception) -> Response:
        return JSONResponse({"reason": str(error)}, 412)

    async def _not_found(self, _: Request, error: Exception) -> Response:
        return JSONResponse({"reason": str(error)}, 404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        self._logger.error("web.request_failed", cause=error, path=request.url.path)
        return JSONResponse({"reason": str(error)}, 500)


def _ok_unless(reason: str | None) -> Response:
    return PlainTextResponse("ok") if reason is None else JSONResponse({"reason": reason}, 503)


def _topic_in(request: Request) -> TopicName:
    parts = request.path_params
    if parts["domain"] not in TOPIC_DOMAINS:
        raise HTTPException(404)
    name = f"{parts['domain']}://{parts['tenant']}/{parts['namespace']}/{parts['topic']}"
    return TopicName.parse(name)
