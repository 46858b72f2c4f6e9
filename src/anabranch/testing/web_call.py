"""Calls an ASGI app in process: no port, no threads, the same in a simulation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

AsgiApp = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What the app answered."""

    status: int
    headers: dict[str, str]
    body: bytes


async def call(
    app: AsgiApp,
    path: str,
    *,
    method: str = "GET",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    state: Mapping[str, Any] | None = None,
    scheme: str = "http",
    on_body: Callable[[bytes], object] | None = None,
) -> WebAnswer:
    """Send one request and return the answer; without its body if `on_body` gets the parts."""
    more = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    plain, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": unquote(plain),
        "raw_path": plain.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"in-process"), *more],
        "state": dict(state or {}),
        "client": ("in-process", 0),
        "server": ("in-process", 80),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if on_body is not None and "body" in message:
            on_body(message.pop("body"))
        sent.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return WebAnswer(
        sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])
    )
