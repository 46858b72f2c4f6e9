"""Replacing the metadata store by HTTP: Pulsar's two requests, ours, and everything refused."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from anabranch.admin import WebInterface
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.operation import Operation
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.server.metadata_migration import migration_of
from anabranch.server.settings import Settings
from anabranch.testing.replaced_stores import Member, Shelf
from anabranch.testing.web_call import call

PULSARS = "/admin/v2/metadata/migration"
OURS = "/admin/v2/anabranch/migrations/metadata"
CLOSED = "anabranch://127.0.0.1:1"
ALLOWED = ("memory:source", "memory:target", "memory:full", "ftp://target", CLOSED)


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}") from error


class Server:
    """A `Served` with a metadata store that can be replaced, and a way to ask it."""

    authentication = None
    authorization = None

    def __init__(self, member: Member, runtime: Runtime, opened: list[str]) -> None:
        self.member = member
        self.opened = opened
        """URLs of stores that this server tried to open, since it runs."""
        settings = Settings(metadata_migration_targets=" ".join(ALLOWED))
        self.metadata_migration: Operation | None = migration_of(
            member.replaceable, runtime, settings
        )
        self._app = WebInterface(self)  # type: ignore[arg-type]

    def why_not_ready(self) -> None:
        """Always ready."""

    async def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await call(self._app, path, method="POST", body=sent)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def get(self, path: str) -> Any:
        answer = await call(self._app, path)
        assert answer.status == 200
        return json.loads(answer.body)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    runtime = real_runtime()
    shelf = Shelf(runtime)
    full = await shelf.open("memory:full")
    for number in range(7):
        await full.put(f"/n{number}", b"x")
    opened: list[str] = []

    async def open_noted(url: str) -> MetadataStore:
        opened.append(url)
        return await shelf.open(url)

    member = await Member.open(runtime, "ash", "memory:source", open_noted, failed, hold_s=60.0)
    await member.store.put("/a/b", b"1")
    opened.clear()
    yield Server(member, runtime, opened)
    await full.close()
    await member.close()
    await shelf.close()


@pytest.mark.parametrize(
    ("target", "status", "why"),
    [
        ("", 400, "say"),
        ("ftp://target", 400, "unknown metadata store"),
        ("memory:source", 400, "is the store that is in use"),
        (CLOSED, 400, "nothing was started"),
        ("memory:full", 409, "is not empty: it has /n0, /n1, /n2, /n3, /n4"),
    ],
)
@pytest.mark.goal("454.A1", part="requests", broken_by="full_targets_are_taken")
@pytest.mark.goal("rel.A1", part="requests", broken_by="full_targets_are_taken")
async def test_a_wrong_target_is_refused_and_nothing_is_written(
    server: Server, target: str, status: int, why: str
) -> None:
    await check_refused(server, target, status, why)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("memory:other", "memory:other"),
        ("oxia://user:secret@169.254.0.1:1/n", "oxia://***@169.254.0.1:1/n"),
        ("zk:169.254.169.254:80", "zk:169.254.169.254:80"),
        (f"{CLOSED}/", f"{CLOSED}/"),
        (CLOSED.upper(), CLOSED.upper()),
        (f" {CLOSED}", f" {CLOSED}"),
        (f"{CLOSED} memory:target", f"{CLOSED} memory:target"),
        ("anabranch://127.0.0.1:01", "anabranch://127.0.0.1:01"),
        ("anabranch://127.0.0.1:1@169.254.0.1:1", "anabranch://***@169.254.0.1:1"),
    ],
)
@pytest.mark.goal("core.S2", part="metadata target", broken_by="any_target_is_allowed")
@pytest.mark.goal("454.A1", part="requests", broken_by="any_target_is_allowed")
@pytest.mark.goal("rel.A1", part="requests", broken_by="any_target_is_allowed")
async def test_a_target_that_is_not_allowed_is_refused_and_nothing_is_opened(
    server: Server, target: str, shown: str
) -> None:
    why = f"{shown} is not in the setting metadata_migration_targets"
    await check_refused(server, target, 400, why)
    assert server.opened == [], "whoever may only ask has no server connect anywhere"


async def check_refused(server: Server, target: str, status: int, why: str) -> None:
    """Each request with a target is refused, and writes nothing."""
    for path, body in (
        (f"{PULSARS}/start?target={quote(target)}", None),
        (f"{PULSARS}/start", {"targetUrl": target}),
        (f"{OURS}/start", {"target": target}),
        (f"{OURS}/plan", {"target": target}),
    ):
        answered, reason = await server.post(path, body)
        assert answered == status, (path, reason)
        assert why in reason["reason"], path
    assert await server.member.replaceable.journal.read() is None
    assert await server.member.store.children("/anabranch/migrations/metadata") == ["participants"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([], "JSON object"),
        ({"target": 5}, "target cannot be"),
        ({"target": "memory:target", "nodes_per_s": True}, "nodes_per_s cannot be"),
        ({"target": "memory:target", "speed": 1}, "'speed' is not known"),
        ({"target": "memory:target", "accept_foreign_risk": 1}, "accept_foreign_risk cannot be"),
        *(
            ({"target": "memory:target", "nodes_per_s": rate}, "nodes_per_s has to be")
            for rate in (0, -1, -0.5, math.nan, math.inf, 10**400)
        ),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(server: Server, body: Any, why: str) -> None:
    status, reason = await server.post(f"{OURS}/start", body)
    assert (status, why in reason["reason"]) == (400, True), reason
    assert await server.member.replaceable.journal.read() is None


async def test_who_accepts_a_risk_says_so_in_the_body(server: Server) -> None:
    body = {"target": "memory:target", "accept_foreign_risk": True}
    status, plan = await server.post(f"{OURS}/plan", body)
    assert (status, plan["parameters"]["accept_foreign_risk"]) == (200, "true")
    status, plan = await server.post(f"{OURS}/plan", {"target": "memory:target"})
    assert (status, "accept_foreign_risk" in plan["parameters"]) == (200, False)


@pytest.mark.parametrize("body", [[], 5, "memory:target", {}, {"targetUrl": 5}, {"target": "x"}])
async def test_a_start_in_pulsars_words_that_names_no_target_is_refused(
    server: Server, body: Any
) -> None:
    status, reason = await server.post(f"{PULSARS}/start", body)
    assert (status, "say where to" in reason["reason"]) == (400, True), reason
    assert await server.member.replaceable.journal.read() is None


@pytest.mark.parametrize(
    ("query", "body"), [("?target=memory:target", None), ("", {"targetUrl": "memory:target"})]
)
@pytest.mark.goal("454.A44", part="requests", broken_by="outward_phase_is_our_own")
async def test_pulsars_two_requests_drive_it_to_its_end(
    server: Server, query: str, body: Any
) -> None:
    assert await server.get(f"{PULSARS}/status") == {"phase": "NOT_STARTED", "targetUrl": None}
    assert await server.post(f"{PULSARS}/start{query}", body) == (204, None)
    seen = (await server.get(f"{PULSARS}/status"))["phase"]
    assert seen in ("PREPARATION", "COPYING", "COMPLETED")
    await server.member.until("switched")
    done = await server.get(f"{PULSARS}/status")
    assert done == {"phase": "COMPLETED", "targetUrl": "memory:target"}
    node = await server.member.store.get("/a/b")
    assert node is not None
    assert (node.value, server.member.store.route.name) == (b"1", "target")


async def test_verbs_are_taken_when_they_make_sense_and_refused_when_not(server: Server) -> None:
    for verb in ("pause", "resume", "abort", "rollback", "finalize"):
        assert (await server.post(f"{OURS}/{verb}"))[0] == 409
    status, plan = await server.post(f"{OURS}/plan", {"target": "memory:target"})
    assert (status, plan["blockers"], plan["figures"]["nodes"] > 0) == (200, [], True)
    assert await server.member.replaceable.journal.read() is None
    status, started = await server.post(f"{OURS}/start", {"target": "memory:target"})
    assert (status, started["number"], started["phase"]) == (200, 1, "preparing")
    before = (await server.get(OURS))["attempt"]
    status, reason = await server.post(f"{OURS}/start", {"target": "memory:target"})
    assert (status, before in reason["reason"]) == (409, True)
    await server.member.until("switched")
    shown = await server.get(OURS)
    assert (shown["attempt"], shown["verbs"]) == (before, ["rollback", "finalize"])
    assert shown["lines"][0].startswith("metadata: switched")
    status, reason = await server.post(f"{OURS}/abort", {"why": "no"})
    assert (status, reason["reason"]) == (
        409,
        f"attempt {before} is switched: only rollback or finalize can be asked now",
    )
    assert (await server.post(f"{OURS}/finalize", {"why": "x" * 501}))[0] == 400
    assert (await server.post(f"{OURS}/finalize", {"why": "all is well"}))[0] == 200
    await server.member.until("finalized")
    status, reason = await server.post(f"{OURS}/finalize")
    assert (status, reason["reason"]) == (409, f"attempt {before} is finalized: it is over")
    trail = (await server.get(OURS))["trail"]
    assert [line["why"] for line in trail if line["what"] == "finalize"] == ["all is well"]


@pytest.mark.goal("454.A3", part="requests", broken_by="second_start_replaces_the_first")
@pytest.mark.goal("rel.A2", part="requests", broken_by="second_start_replaces_the_first")
async def test_of_two_starts_at_a_time_one_is_refused(server: Server) -> None:
    answers = await asyncio.gather(
        *(server.post(f"{OURS}/start", {"target": "memory:target"}) for _ in range(2))
    )
    assert sorted(status for status, _ in answers) == [200, 409]
    (started,) = [found for status, found in answers if status == 200]
    state = await server.member.until("switched")
    assert (state.announced.attempt, state.announced.number) == (started["attempt"], 1)


async def test_a_store_of_the_servers_own_cannot_be_replaced(server: Server) -> None:
    server.metadata_migration = None
    assert (await server.post(f"{OURS}/start", {"target": "memory:target"}))[0] == 405
