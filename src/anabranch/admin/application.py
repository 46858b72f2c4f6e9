"""The web interface as an ASGI app, made from the table of endpoints.

The app knows the server through `Served` only, so it answers the same under a web server and when
it is called in process by the simulation. Every error is JSON: {"reason": "…"}.
"""

import json
import string
from typing import Any, Final
from urllib.parse import quote_from_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch.admin.endpoints import EMPTY, ORIGINAL_PRINCIPAL, Call, Endpoint, Origin
from anabranch.admin.limits import BODY_BYTES_MAX
from anabranch.admin.refusals import Redirected, RestRefused, status_of
from anabranch.admin.router import Router
from anabranch.admin.served import Served
from anabranch.admin.table import ENDPOINTS
from anabranch.errors import AnabranchError
from anabranch.security import Caller, Right
from anabranch.telemetry.logs import get_logger

CERTIFICATE: Final = "anabranch.peer_certificate"
"""Where the web server leaves what a client has shown, in the state of a request."""
_WITHOUT_THE_BROKER: Final = (
    "/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/admin/v2/brokers/version", "/metrics",
)  # fmt: skip


class WebInterface:
    """Answers every request of the web; an ASGI app."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._router = Router(ENDPOINTS)
        self._log = get_logger("web")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except AnabranchError as error:
            response = self._refusal(request, error)
        except Exception as error:
            if self._served.why_not_ready() is not None:
                raise  # nobody counts yet
            doing = f"{request.method} {request.url.path[:200]}"
            self._served.broker.mishaps.report(doing, error)
            response = _json({"reason": "an unexpected error, see the log"}, 500, None)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        endpoint, names = self._find(request)
        if endpoint.path not in _WITHOUT_THE_BROKER:
            reason = self._served.why_not_ready()
            if reason is not None:
                raise RestRefused(503, reason)
        caller = self._caller(request) if endpoint.right is not Right.ANYBODY else None
        body = await _body(request)
        call = Call(self._served, names, request.query_params, body, caller, _origin(request))
        await self._authorize(call, endpoint)
        return _response(await endpoint.serve(call))

    def _find(self, request: Request) -> tuple[Endpoint, dict[str, str]]:
        found = self._router.find(_raw_path(request))
        if found is None:
            raise RestRefused(404, f"nothing is served at {request.url.path[:200]}")
        endpoint = found.methods.get(request.method)
        if endpoint is None:
            raise RestRefused(405, f"{request.method} is not possible at {request.url.path[:200]}")
        return endpoint, found.names

    def _caller(self, request: Request) -> Caller | None:
        authentication = self._served.authentication
        if authentication is None:
            return None
        certificate = request.scope.get("state", {}).get(CERTIFICATE)
        identity = authentication.identify_web(request.headers.get("authorization"), certificate)
        return Caller(identity.role, request.headers.get(ORIGINAL_PRINCIPAL))

    async def _authorize(self, call: Call, endpoint: Endpoint) -> None:
        resource = call.resource()
        authorization = self._served.authorization
        if authorization is not None and endpoint.right is not Right.ANYBODY:
            assert call.caller is not None, "nobody is authorized whom nobody has authenticated"
            await authorization.check(call.caller, endpoint.right, resource)

    def _refusal(self, request: Request, error: AnabranchError) -> Response:
        status = status_of(error)
        if status >= 500:
            self._log.error("web.request_failed", cause=error, path=request.url.path)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        if isinstance(error, Redirected):
            headers["Location"] = error.location
        return _json({"reason": str(error)}, status, headers)


def _raw_path(request: Request) -> bytes:
    raw_path: bytes = request.scope["raw_path"]
    return raw_path


def _origin(request: Request) -> Origin:
    shown = {
        name: request.headers[name]
        for name in ("authorization", ORIGINAL_PRINCIPAL)
        if name in request.headers
    }
    # What is no ASCII may be sent as it is, but not be sent on so.
    path = quote_from_bytes(_raw_path(request), safe=string.punctuation)
    return Origin(request.method, path, request.url.scheme == "https", shown)


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > BODY_BYTES_MAX:
            raise RestRefused(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    return bytes(parts)


def _response(answer: object) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    if answer is EMPTY:
        return Response(status_code=200)
    return _json(answer, 200, None)


def _json(answer: Any, status: int, headers: dict[str, str] | None) -> Response:
    text = json.dumps(answer, separators=(",", ":"), ensure_ascii=True)
    return Response(text, status, headers, media_type="application/json")
