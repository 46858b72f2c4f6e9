"""HTTP to a broker's web interface: h11 over the door of `runtime`, a few connections kept.

A request that got no answer is asked again only if it changes nothing.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import h11

from anabranch import __version__
from anabranch.client.credentials import Credentials
from anabranch.client.limits import (
    ADMIN_ANSWER_BYTES_MAX,
    ADMIN_IDLE_CONNECTIONS_MAX,
    ADMIN_REDIRECTS_MAX,
)
from anabranch.errors import ConfigError, OutcomeUnknown, ProtocolError, Unreachable
from anabranch.limits import CONNECT_TIMEOUT_S
from anabranch.runtime import Network
from anabranch.runtime.network import Connection, Tls

_PORTS: Final = {"http": 8080, "https": 8443}
_REDIRECTS: Final = (301, 302, 307, 308)


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """By names in small letters."""
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None if there is none.

        Raises:
            ProtocolError: if it is something else.
        """
        if not self.body.strip():
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise ProtocolError(f"an answer that is no JSON: {self.body[:80]!r}") from None


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    port: int
    secure: bool

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_web_url(url: str) -> _Place:
    """Return where an `http://host:port` or `https://host:port` leads to.

    Raises:
        ConfigError: if it is no such address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"web URL {url!r}: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"web URL must be http://host:port or https://host:port, not {url!r}")
    return _Place(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "https")


class _WebConnection:
    """One connection, one request at a time. A `ConnectionHandler`."""

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._http = h11.Connection(h11.CLIENT)
        self._transport: Connection | None = None
        self._waiting: asyncio.Future[WebAnswer] | None = None
        self._head: h11.Response | None = None
        self._body = bytearray()
        self.lost = False

    # --- ConnectionHandler -------------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        self._transport = transport

    def data_received(self, data: bytes, /) -> None:
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> bool | None:
        if self._waiting is not None and self._head is not None:
            self._http.receive_data(b"")  # the end of a body whose length was not said
            self._read()
        self._fail(OutcomeUnknown("the server closed the connection before the answer"))
        return False

    def connection_lost(self, exc: Exception | None, /) -> None:
        self._fail(OutcomeUnknown("the connection was lost before the answer"))

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    # --- one exchange ------------------------------------------------------------------------

    async def exchange(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> WebAnswer:
        """Send a request and return the answer.

        Raises:
            OutcomeUnknown: if none came.
            ProtocolError: if what came is no HTTP.
        """
        self._head, self._body = None, bytearray()
        self._waiting = asyncio.get_running_loop().create_future()
        request = h11.Request(method=method, target=target, headers=headers)
        parts = [self._http.send(request), self._http.send(h11.Data(data=body)) if body else b""]
        parts.append(self._http.send(h11.EndOfMessage()))
        if self._transport is None or self.lost:
            raise OutcomeUnknown("the connection was lost before the request")
        self._transport.write(b"".join(part for part in parts if part))
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def _read(self) -> None:
        try:
            while self._waiting is not None:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._fail(
                ProtocolError(
                    f"an answer from {self._authority} that is no HTTP: {error}; is that another "
                    f"port than the one of the web interface, usually {_PORTS['http']}, or "
                    f"{_PORTS['https']} in TLS?"
                )
            )
            self.close()

    def _take(self, event: Any) -> None:
        if isinstance(event, h11.Response):
            self._head = event
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > ADMIN_ANSWER_BYTES_MAX:
                self._fail(ProtocolError(f"an answer of more than {ADMIN_ANSWER_BYTES_MAX} bytes"))
                self.close()
        elif isinstance(event, h11.EndOfMessage) and self._head is not None:
            headers = {name.decode(): value.decode("latin-1") for name, value in self._head.headers}
            answer = WebAnswer(self._head.status_code, headers, bytes(self._body))
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(answer)
            self._waiting = None

    def _fail(self, error: Exception) -> None:
        self.lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self._waiting = None

    def renew(self) -> bool:
        """Prepare for another request; whether that is possible."""
        if self.lost or self._http.our_state is not h11.DONE:
            return False
        if self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close it."""
        self.lost = True
        if self._transport is not None:
            self._transport.close()


class WebClient:
    """Requests to the web interface of one cluster."""

    def __init__(
        self,
        network: Network,
        url: str,
        *,
        credentials: Credentials | None,
        tls: Tls | None,
        timeout_s: float,
    ) -> None:
        """Raises ConfigError if the address is none."""
        self._network = network
        self._place = parse_web_url(url)
        self._credentials = credentials
        self._tls = tls if tls is not None else Tls()
        self._timeout_s = timeout_s
        self._idle: dict[_Place, list[_WebConnection]] = {}
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = "application/json",
        patience_s: float = 0.0,
    ) -> WebAnswer:
        """Send a request, to wherever the server says, and return the answer.

        With `patience_s` the answer may take so long, if that is longer than usual.

        Raises:
            Unreachable: if nobody could be asked.
            OutcomeUnknown: if no answer came; a change may have been made.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        place = self._place
        timeout_s = max(self._timeout_s, patience_s)
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(ADMIN_REDIRECTS_MAX + 1):
                    answer = await self._ask(place, method, target, body, content_type)
                    if answer.status not in _REDIRECTS:
                        return answer
                    place, target = _redirected(answer, place)
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {timeout_s:g} s from {place.authority}"
            ) from None
        raise ProtocolError(f"{method} {path} was redirected {ADMIN_REDIRECTS_MAX} times")

    async def _ask(
        self, place: _Place, method: str, target: str, body: bytes, content_type: str
    ) -> WebAnswer:
        headers = [
            ("Host", place.authority),
            ("User-Agent", f"anabranch/{__version__}"),
            ("Accept", "*/*"),
            ("Content-Length", str(len(body))),
        ]
        if body:
            headers.append(("Content-Type", content_type))
        # Elsewhere than where the user sent it the secret is shown too: brokers of one cluster.
        if self._credentials is not None and (shown := self._credentials.header()):
            headers.append(("Authorization", shown))
        # One that is kept may have been closed meanwhile: of a change nobody would know.
        if method == "GET" and (kept := self._kept(place)) is not None:
            try:
                return await self._use(place, kept, method, target, headers, body)
            except OutcomeUnknown:
                pass
        return await self._use(place, await self._open(place), method, target, headers, body)

    async def _use(
        self,
        place: _Place,
        connection: _WebConnection,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes,
    ) -> WebAnswer:
        try:
            answer = await connection.exchange(method, target, headers, body)
        except BaseException:
            connection.close()
            raise
        idle = self._idle.setdefault(place, [])
        if not self._closed and len(idle) < ADMIN_IDLE_CONNECTIONS_MAX and connection.renew():
            idle.append(connection)
        else:
            connection.close()
        return answer

    def _kept(self, place: _Place) -> _WebConnection | None:
        idle = self._idle.get(place, [])
        while idle:
            connection = idle.pop()
            if not connection.lost:
                return connection
        return None

    async def _open(self, place: _Place) -> _WebConnection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._network.connect(
                    place.host,
                    place.port,
                    partial(_WebConnection, place.authority),
                    tls=self._tls if place.secure else None,
                )
        except (OSError, TimeoutError) as error:
            raise Unreachable(
                f"nothing answers at {place.authority}: is the server running?"
            ) from error
        assert isinstance(connection, _WebConnection)
        return connection

    def close(self) -> None:
        """Close the connections that are kept."""
        self._closed = True
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


def _redirected(answer: WebAnswer, place: _Place) -> tuple[_Place, str]:
    where = answer.headers.get("location", "")
    parts = urlsplit(where)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if not target:
        raise ProtocolError(f"redirected to nowhere: {where!r}")
    there = parse_web_url(where) if parts.scheme else place
    if place.secure and not there.secure:
        raise ProtocolError(f"redirected out of TLS, to {where!r}: credentials are not shown there")
    return there, target
