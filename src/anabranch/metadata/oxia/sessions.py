"""One session over all shards: kept alive on each, over as soon as it is over on any.

The number of a session stands in the identity that every ephemeral record carries, so that any
client can tell whose a record is. A renewal counts once something could be written after it: a
server that was replaced without its knowledge goes on answering, but cannot write.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from anabranch import limits
from anabranch.errors import ConfigError, ProtocolError, Unreachable
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.requests import SERVICE, parse
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.served.lease import Lease
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.store import SessionEvent
from anabranch.runtime import Runtime
from anabranch.runtime.channels import CallFailed, Channel
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("oxia-session")
_IDENTITY: Final = "anabranch-"
_TICKS_PER_TIMEOUT: Final = 12


def identity_of(session: int) -> str:
    """What the records of a session carry."""
    return f"{_IDENTITY}{session}"


def session_of(version: pb.Version) -> int:
    """The session that a record belongs to; `NOBODY` for a lasting one.

    Of other clients than ours, who have a session per shard, it is the number of that.
    """
    if not version.HasField("session_id"):
        return NOBODY
    number = version.client_identity.removeprefix(_IDENTITY)
    if number != version.client_identity and number.isascii() and number.isdigit():
        return int(number)
    return version.session_id


def says_unknown_session(error: CallFailed) -> bool:
    """Whether a shard answered that it knows no such session: it is over there.

    A server that has just begun says `NOT_FOUND` of the whole shard, which means no such thing.
    """
    return error.code == "NOT_FOUND" and "session" in error.detail


class SharedLease:
    """What a client may still believe of a session that several shards keep. Pure."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._leases: dict[int, Lease] = {}

    def begin(self, shard: int, sent_s: float) -> None:
        """A shard granted its part, by a request sent at that time."""
        lease = self._leases[shard] = Lease()
        lease.begin(self.timeout_s, sent_s)

    def renewed(self, shard: int, sent_s: float) -> None:
        """A renewal sent at that time was answered."""
        if shard in self._leases:
            self._leases[shard].renewed(sent_s)

    def end(self) -> None:
        """The session is over."""
        self._leases.clear()

    @property
    def valid_until_s(self) -> float:
        """Before this no shard can have ended the session."""
        return min((lease.valid_until_s for lease in self._leases.values()), default=-math.inf)

    @property
    def lost_at_s(self) -> float:
        """At this moment, without another answer of the slowest, the session must be given up."""
        return min((lease.lost_at_s for lease in self._leases.values()), default=-math.inf)


class SessionKeeper:
    """Begins sessions, renews them, and says what happens to them."""

    def __init__(
        self,
        runtime: Runtime,
        links: Sequence[ShardLink],
        timeout_s: float,
        news: SessionNews | None = None,
    ) -> None:
        """Use `open` next.

        Raises:
            ConfigError: if no server accepts such a timeout.
        """
        least_s, most_s = limits.OXIA_SESSION_TIMEOUT_S_MIN, limits.OXIA_SESSION_TIMEOUT_S_MAX
        if not least_s <= timeout_s <= most_s:
            raise ConfigError(f"Oxia takes session timeouts from {least_s} to {most_s} seconds")
        self.news = news or SessionNews()
        self.number = NOBODY
        self.lease = SharedLease(timeout_s)
        self._ids: dict[int, int] = {}
        self._runtime = runtime
        self._links = links
        self._alive = False
        self._connected = True
        self._keeping: asyncio.Task[Any] | None = None

    @property
    def identity(self) -> str:
        """What records of the present session carry."""
        return identity_of(self.number)

    def id_on(self, shard: int) -> int | None:
        """The shard's own number of the session; None while there is no session."""
        return self._ids.get(shard) if self._alive else None

    @property
    def valid_until_s(self) -> float:
        """Before this no shard can have ended the session."""
        return self.lease.valid_until_s if self._alive else -math.inf

    async def open(self, tasks: Tasks) -> None:
        """Begin the first session.

        Raises:
            Unreachable: if a shard does not answer.
        """
        try:
            await self._begin()
        except CallFailed as error:
            raise Unreachable(f"no session at Oxia: {error}") from None
        self._keeping = tasks.spawn("oxia-session", self._keep())

    def give_up(self) -> None:
        """The session cannot be kept: its shards are gone."""
        self._alive = False
        if self._keeping is not None:
            self._keeping.cancel()
        self.news.publish(SessionEvent.SESSION_LOST)

    async def close(self) -> None:
        """End the session, and with it its records."""
        self._alive = False
        try:
            if self._keeping is not None:
                self._keeping.cancel()
                await asyncio.wait([self._keeping])
            await self._end_everywhere()
        finally:
            self.news.close()

    async def _begin(self) -> None:
        number = 1 + self._runtime.entropy.below(2**62)
        ids: dict[int, int] = {}

        async def begin(link: ShardLink) -> None:
            sent_s = self._runtime.clock.monotonic_s()
            request = pb.CreateSessionRequest(
                shard=link.number,
                session_timeout_ms=round(self.lease.timeout_s * 1000),
                client_identity=identity_of(number),
            )
            answer = await link.ask("CreateSession", request, pb.CreateSessionResponse)
            ids[link.number] = answer.session_id
            self.lease.begin(link.number, sent_s)

        self.lease.end()
        self._ids = ids
        await asyncio.gather(*map(begin, self._links))
        self.number = number
        self._alive = True

    async def _end_everywhere(self) -> None:
        async def end(link: ShardLink) -> None:
            if (session_id := self._ids.get(link.number)) is None:
                return
            request = pb.SessionRequest(shard=link.number, session_id=session_id)
            # If that fails it is over already, or runs out by itself.
            with suppress(CallFailed):
                await link.channel.ask(
                    f"{SERVICE}CloseSession",
                    request.SerializeToString(),
                    timeout_s=self.lease.timeout_s / 6,
                )

        await asyncio.gather(*map(end, self._links))
        self._ids = {}

    async def _renew(self, link: ShardLink) -> bool:
        """Whether the shard still knows the session; `CallFailed` if it does not answer."""
        session_id, channel = self._ids[link.number], link.channel
        await self._connect(channel)
        sent_s = self._runtime.clock.monotonic_s()
        timeout_s = max(0.05, min(self.lease.timeout_s / 6, self.lease.lost_at_s - sent_s))
        request = pb.SessionRequest(shard=link.number, session_id=session_id)
        try:
            await channel.ask(
                f"{SERVICE}KeepAlive", request.SerializeToString(), timeout_s=timeout_s
            )
            if not await self._pulse(link.number, session_id, channel, timeout_s):
                return False
        except CallFailed as error:
            if says_unknown_session(error):
                return False
            raise
        self.lease.renewed(link.number, sent_s)
        return True

    async def _connect(self, channel: Channel) -> None:
        """Wait a little for a connection: without one a call fails at once.

        One that is there for moments only would be missed by whoever looks now and then.
        """
        try:
            async with asyncio.timeout(self.lease.timeout_s / _TICKS_PER_TIMEOUT):
                await channel.ready()
        except TimeoutError:
            raise CallFailed("UNAVAILABLE", "there is no connection") from None

    async def _pulse(self, shard: int, session_id: int, channel: Channel, timeout_s: float) -> bool:
        """Write under the session by the same server: it cannot if another leads the shard now.

        Such a server answers all else as before, and the one that leads knows nothing of that.
        """
        put = pb.PutRequest(
            key=keys.pulse_key(self.number), session_id=session_id, client_identity=self.identity
        )
        request = pb.WriteRequest(shard=shard, puts=[put])
        data = await channel.ask(
            f"{SERVICE}Write", request.SerializeToString(), timeout_s=timeout_s
        )
        try:
            answers = parse(pb.WriteResponse, data).puts
        except ProtocolError as error:
            raise CallFailed("INTERNAL", str(error)) from None
        if not answers:
            raise CallFailed("INTERNAL", "a write was answered with nothing")
        return answers[0].status == pb.OK

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.lease.timeout_s / _TICKS_PER_TIMEOUT)
            answers = await asyncio.gather(
                *(self._renew(link) for link in self._links), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, CallFailed):
                    raise answer
            reachable = not any(isinstance(answer, CallFailed) for answer in answers)
            if False in answers or self._runtime.clock.monotonic_s() >= self.lease.lost_at_s:
                await self._replace()
            elif reachable != self._connected:
                self.news.publish(
                    SessionEvent.RECONNECTED if reachable else SessionEvent.CONNECTION_LOST
                )
                self._connected = reachable

    async def _replace(self) -> None:
        self._alive = False
        self.news.publish(SessionEvent.SESSION_LOST)
        delay_s = limits.METADATA_RECONNECT_DELAY_S_MIN
        while True:
            await self._end_everywhere()
            try:
                await self._begin()
            except (CallFailed, ProtocolError) as error:
                _log.warning("oxia_session_not_begun", reason=str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, limits.METADATA_RECONNECT_DELAY_S_MAX)
            else:
                break
        self._connected = True
        self.news.publish(SessionEvent.SESSION_REESTABLISHED)
