"""Asks another broker's web interface: one request, one connection, through the door of `runtime`.

The request is HTTP/1.0, so that the answer ends with the connection and needs no further framing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from anabranch.admin.limits import (
    OTHER_BROKER_ANSWER_BYTES_MAX,
    OTHER_BROKER_ANSWER_S_MAX,
    OTHER_BROKER_REDIRECTS_MAX,
)
from anabranch.errors import ProtocolError, Unreachable
from anabranch.runtime.network import Connection, Network, Tls


@dataclass(frozen=True, slots=True)
class Answer:
    """What the other broker said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class _Exchange:
    """One request and its answer. A `ConnectionHandler`."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._heard = bytearray()
        self._connection: Connection | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Connection, /) -> None:
        self._connection = transport
        transport.write(self._request)

    def data_received(self, data: bytes, /) -> None:
        self._heard += data
        if len(self._heard) > OTHER_BROKER_ANSWER_BYTES_MAX:
            self._end(ProtocolError("the answer of another broker is too long"))
            self.abort()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None, /) -> None:
        self._end(exc)

    def pause_writing(self) -> None:
        """The request is small and was queued at once."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def abort(self) -> None:
        """Want no more."""
        if self._connection is not None:
            self._connection.abort()

    def _end(self, error: Exception | None) -> None:
        if not self.answer.done():
            if error is None:
                self.answer.set_result(bytes(self._heard))
            else:
                self.answer.set_exception(error)


async def ask(
    network: Network,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    tls: Tls | None = None,
    may_go_to: Callable[[str], Awaitable[bool]],
) -> Answer:
    """Ask, and go where the answer sends us: to brokers that may be trusted with the headers.

    Raises:
        Unreachable: if no answer came, or we are sent to anybody else.
        ProtocolError: if it is none of HTTP.
    """
    for _ in range(OTHER_BROKER_REDIRECTS_MAX):
        answer = await _ask_once(network, method, url, headers, body, tls)
        if answer.status != 307 or "location" not in answer.headers:
            return answer
        before, url = url, answer.headers["location"]
        if urlsplit(before).scheme == "https" and urlsplit(url).scheme != "https":
            raise Unreachable(f"{before} sends a request on in the clear, to {url[:200]!r}")
        if not await may_go_to(url):
            raise Unreachable(f"{before} sends us to {url[:200]!r}, no broker of this cluster")
    raise Unreachable(f"{url} sends requests from one broker to the other")


async def _ask_once(
    network: Network,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    tls: Tls | None,
) -> Answer:
    where = urlsplit(url)
    if where.scheme not in ("http", "https") or not where.hostname or where.port is None:
        raise Unreachable(f"{url[:200]!r} is no address of a broker's web interface")
    target = where.path + (f"?{where.query}" if where.query else "")
    request = _encoded(method, target, where.netloc, headers, body)
    exchange: _Exchange | None = None
    try:
        async with asyncio.timeout(OTHER_BROKER_ANSWER_S_MAX):
            made = await network.connect(
                where.hostname,
                where.port,
                lambda: _Exchange(request),
                tls=(tls or Tls()) if where.scheme == "https" else None,
            )
            assert isinstance(made, _Exchange)
            exchange = made
            return _decoded(await exchange.answer)
    except OSError as error:  # TimeoutError is one
        raise Unreachable(f"broker {where.netloc} did not answer: {error}") from error
    finally:
        if exchange is not None:
            exchange.abort()


def _encoded(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.0", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += (f"{name}: {value}" for name, value in headers.items())
    assert not any("\r" in line or "\n" in line for line in lines), "a line with two in it"
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def _decoded(heard: bytes) -> Answer:
    head, found, body = heard.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if not found or not first.startswith("HTTP/1.") or len(words) < 2 or not words[1].isdecimal():
        raise ProtocolError(f"another broker answered {heard[:80]!r}, which is no HTTP")
    pairs = (line.partition(":") for line in rest)
    return Answer(
        int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}, body
    )
