"""Restores send short requests to a server that is slow, or that nobody knows yet."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator

import pytest

from anabranch import limits
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.zookeeper import request_sizes, requests
from anabranch.metadata.zookeeper.limits import (
    RESTORE_ANSWER_S_USUAL,
    RESTORE_OPERATIONS_FIRST,
    RESTORE_OPERATIONS_MIN,
    RESTORES_UNDER_WAY_FIRST,
)
from anabranch.metadata.zookeeper.request_sizes import RequestSize
from anabranch.metadata.zookeeper.requests import Request
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ModelServer

FAST_S, SLOW_S = RESTORE_ANSWER_S_USUAL / 10, RESTORE_ANSWER_S_USUAL * 2


def test_a_fast_server_gets_longer_requests_up_to_the_limit() -> None:
    size = RequestSize()
    assert size.operations_max == RESTORE_OPERATIONS_FIRST
    found = []
    for _ in range(6):
        size.answered(FAST_S)
        found.append(size.operations_max)
    assert found == [200, 400, 800, *[limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX] * 3]


def test_a_slow_server_gets_shorter_requests_down_to_the_limit() -> None:
    size = RequestSize()
    for _ in range(6):
        size.answered(SLOW_S)
    assert size.operations_max == RESTORE_OPERATIONS_MIN
    size.answered(RESTORE_ANSWER_S_USUAL)
    assert size.operations_max == RESTORE_OPERATIONS_MIN, "neither fast nor slow"
    size.answered(FAST_S)
    assert size.operations_max == 2 * RESTORE_OPERATIONS_MIN


def test_more_are_under_way_while_long_ones_are_answered_fast() -> None:
    size = RequestSize()
    found = []
    for _ in range(8):
        size.answered(FAST_S)
        found.append(size.under_way_max)
    most = limits.ZOOKEEPER_RESTORES_UNDER_WAY_MAX
    assert found == [
        *[RESTORES_UNDER_WAY_FIRST] * 4,
        RESTORES_UNDER_WAY_FIRST + 1,
        most,
        most,
        most,
    ]
    size.answered(RESTORE_ANSWER_S_USUAL)
    assert size.under_way_max == most, "neither fast nor slow"
    size.answered(SLOW_S)
    assert size.under_way_max == RESTORES_UNDER_WAY_FIRST
    size.answered(FAST_S)
    assert size.under_way_max == RESTORES_UNDER_WAY_FIRST, "they are to be longer first"


def test_a_lower_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ZOOKEEPER_RESTORE_OPERATIONS_MAX", 3)
    size = RequestSize()
    for took_s in (FAST_S, SLOW_S, SLOW_S):
        size.answered(took_s)
        assert size.operations_max == 3


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    loop, runtime = asyncio.get_running_loop(), real_runtime()
    quorum = Quorum(Surroundings(loop, runtime.clock, random.Random(1)), Nature(members=1))
    server = ModelServer(quorum, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    store = await open_store(f"zk:127.0.0.1:{listener.port}/here", runtime)
    yield store
    await store.close()
    await listener.close()
    server.stop()


@pytest.mark.parametrize("fast", [True, False])
async def test_a_restore_goes_by_how_fast_it_is_answered(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    sizes: list[int] = []
    made = requests.multi_done

    def noted(operations: list[Request[object]]) -> Request[object]:
        sizes.append(len(operations))
        return made(operations)

    monkeypatch.setattr(requests, "multi_done", noted)
    monkeypatch.setattr(request_sizes, "RESTORE_ANSWER_S_USUAL", 1e9 if fast else 0.0)
    nodes = [Record(f"/{number:04}", b"v", 0, 0, 0) for number in range(2000)]
    assert await store.restore(each(iter(nodes))) == len(nodes)
    assert sizes[0] == RESTORE_OPERATIONS_FIRST
    assert sum(sizes) == len(nodes)
    later = sizes[limits.ZOOKEEPER_RESTORES_UNDER_WAY_MAX + 1 :]
    if fast:
        assert max(later) > RESTORE_OPERATIONS_FIRST
    else:
        assert max(later) < RESTORE_OPERATIONS_FIRST
