"""A load of admin requests that notes what was acknowledged, and looks for all of it later.

Namespaces, policies, topics and subscriptions are made and changed all the time, some subscriptions
deleted. A request that came to nothing, or whose end is not known, is sent again to another broker.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.client.admin import AdminClient
from anabranch.client.admin.namespace_policies import RETENTION
from anabranch.client.admin.refusals import AdminConflict, AdminNotFound, AdminRefused
from anabranch.errors import AnabranchError, OutcomeUnknown, Unreachable
from anabranch.policies import RetentionRule

_WRITERS: Final = 3
_CHANGES: Final = 4
"""Of a namespace's policy."""
_REST_S: Final = 0.2
"""After each change of a policy: the load is to be there all the time, not to be much."""
_AGAIN_S: Final = 0.2
_MAY_PASS: Final = (409, 500, 503)
"""Answers of a broker that has lost a topic, or a store for a moment."""
_WRONG_MAX: Final = 20
Request = Callable[[AdminClient], Awaitable[None]]
CAUSES: Final = ("unreachable", "unknown", *(f"http_{status}" for status in _MAY_PASS))
"""Why requests are sent again. A stock admin client does so if it could not connect, no more."""


@dataclass(frozen=True, slots=True)
class Resend:
    """A request that came to nothing, or whose end is not known, and was sent again."""

    what: str
    cause: str
    """One of `CAUSES`."""
    why: str
    began_s: float
    ended_s: float
    """By the monotonic clock, which processes share."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"

    def falls_in(self, spans: Iterable[tuple[float, float]]) -> bool:
        """Whether any of it was within one of some spans of time."""
        return any(self.ended_s >= since and self.began_s <= until for since, until in spans)


@dataclass(slots=True)
class AdminLoad:
    """What several writers asked of brokers, and what was acknowledged."""

    web_urls: Sequence[str]
    acknowledged: int = 0
    """Writes."""
    retried: list[Resend] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that should not have come, and acknowledged writes that are not there."""
    longest_s: float = 0.0
    """That anybody waited for one answer that was good."""
    longest: str = ""
    """What was asked for then."""
    longest_whole_s: float = 0.0
    """From when something was asked for first until it was done, however often it was sent."""
    _retention: dict[str, int] = field(default_factory=dict)
    """What was decided last for each namespace."""
    _subscriptions: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Of each topic, and whether it is there still."""
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, tenant: str = "public") -> None:
        """Write from now on."""
        self._over.clear()
        first = self.acknowledged
        self._tasks = [
            asyncio.ensure_future(self._write(number, f"{tenant}/load-{first}-{number}"))
            for number in range(_WRITERS)
        ]

    async def stop(self) -> None:
        """Finish what is under way, then end; raises what a writer met that is not expected."""
        self._over.set()
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)

    def causes(self) -> Mapping[str, int]:
        """How many requests were sent again, by cause."""
        found = Counter(resend.cause for resend in self.retried)
        return {cause: found[cause] for cause in CAUSES}

    async def _write(self, number: int, name: str) -> None:
        clients = [AdminClient(url) for url in self.web_urls]
        clients = clients[number % len(clients) :] + clients[: number % len(clients)]
        spaces = 0
        try:
            while not self._over.is_set():
                await self._fill(clients, f"{name}-{spaces}")
                spaces += 1
        finally:
            for client in clients:
                client.close()

    async def _fill(self, clients: list[AdminClient], space: str) -> None:
        await self._do(clients, f"create {space}", lambda admin: admin.namespaces.create(space))
        self._retention[space] = 0
        topic = f"persistent://{space}/orders"
        await self._do(clients, f"create {topic}", lambda admin: admin.topics.create(topic))
        there = self._subscriptions[topic] = {}
        for minutes in range(1, _CHANGES + 1):
            if self._over.is_set():
                return
            rule = RetentionRule(time_minutes=minutes, size_mb=minutes)
            await self._do(clients, f"retention {minutes} of {space}", _retention(space, rule))
            self._retention[space] = minutes
            name = f"billing-{minutes}"
            await self._do(clients, f"subscribe {name} to {topic}", _subscribe(topic, name))
            there[name] = True
            if minutes % 2 == 0:
                await self._do(clients, f"unsubscribe {name}", _unsubscribe(topic, name))
                there[name] = False
            await asyncio.sleep(_REST_S)

    async def _do(self, clients: list[AdminClient], what: str, request: Request) -> None:
        """Ask until it is done; a repeated request may find it done already."""
        first_s, tries = time.monotonic(), 0
        while True:
            began_s = time.monotonic()
            try:
                await request(clients[tries % len(clients)])
            except (OutcomeUnknown, Unreachable, AdminRefused) as error:
                if _says_done(error):
                    if not tries:
                        self.wrong.append(f"{what}: {error}")
                    return
                if isinstance(error, AdminRefused) and error.status not in _MAY_PASS:
                    self.wrong.append(f"{what}: {error}")
                    return
                self.retried.append(
                    Resend(what, _cause(error), str(error), began_s, time.monotonic())
                )
                tries += 1
                await asyncio.sleep(_AGAIN_S)
            else:
                self._done(what, began_s, first_s)
                return

    def _done(self, what: str, began_s: float, first_s: float) -> None:
        now_s = time.monotonic()
        self.acknowledged += 1
        self.longest_whole_s = max(self.longest_whole_s, now_s - first_s)
        if now_s - began_s > self.longest_s:
            self.longest_s, self.longest = now_s - began_s, what

    async def check(self, web_url: str) -> list[str]:
        """Look for all that was acknowledged; returns what is wrong, the first of it."""
        wrong = list(self.wrong)
        async with AdminClient(web_url) as admin:
            for space, minutes in self._retention.items():
                try:
                    rule = await admin.namespaces.policy(space, RETENTION)
                except AnabranchError as error:
                    wrong.append(f"{space}: {error}")
                    continue
                found = 0 if rule is None else rule.time_minutes
                if found != minutes:
                    wrong.append(f"retention of {space} is {found}, not {minutes}")
            for topic, subscriptions in self._subscriptions.items():
                try:
                    names = await admin.subscriptions.names(topic)
                except AnabranchError as error:
                    wrong.append(f"{topic}: {error}")
                    continue
                expected = sorted(name for name, is_there in subscriptions.items() if is_there)
                if sorted(names) != expected:
                    wrong.append(f"{topic} has {names}, not {expected}")
        return wrong[:_WRONG_MAX]


def _cause(error: AnabranchError) -> str:
    if isinstance(error, AdminRefused):
        return f"http_{error.status}"
    return "unknown" if isinstance(error, OutcomeUnknown) else "unreachable"


def _says_done(error: AnabranchError) -> bool:
    """Whether what was asked for is so already."""
    if isinstance(error, AdminConflict):
        return "already exist" in error.reason
    return isinstance(error, AdminNotFound) and "ubscription" in error.reason


def _retention(space: str, rule: RetentionRule) -> Request:
    return lambda admin: admin.namespaces.set_policy(space, RETENTION, rule)


def _subscribe(topic: str, name: str) -> Request:
    return lambda admin: admin.subscriptions.create(topic, name)


def _unsubscribe(topic: str, name: str) -> Request:
    return lambda admin: admin.subscriptions.delete(topic, name)
