"""Empty metadata stores of every kind at URLs, on models of servers in this process."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from anabranch.runtime import Runtime
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model import cluster as oxia_cluster
from anabranch.testing.oxia_model import service as oxia_service
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ModelServer

REQUEST_BYTES: Final = 4 << 20
_LOOPBACK: Final = "127.0.0.1"


def model_runtime() -> Runtime:
    """The real one, but for calls to Oxia, which go to a model."""
    return replace(real_runtime(), channels=ModelChannels(RealNetwork()))


def _surroundings() -> Surroundings:
    clock = real_runtime().clock
    return Surroundings(asyncio.get_running_loop(), clock, random.Random(1))


@asynccontextmanager
async def modelled_zookeeper(chroot: str) -> AsyncIterator[str]:
    """The URL of a store on a modelled ZooKeeper."""
    quorum = Quorum(_surroundings(), Nature(members=1))
    server = ModelServer(quorum, contextvars.copy_context(), request_bytes_max=REQUEST_BYTES)
    listener = await server.start(RealNetwork(), _LOOPBACK, 0)
    try:
        yield f"zk:{_LOOPBACK}:{listener.port}/{chroot}?jute.maxbuffer={REQUEST_BYTES}"
    finally:
        await listener.close()
        server.stop()


@asynccontextmanager
async def modelled_oxia(numbers_given: int = 0) -> AsyncIterator[str]:
    """The URL of a store on a modelled Oxia; it may have given out numbers before."""
    nature = oxia_cluster.Nature(numbers_given=numbers_given)
    cluster = oxia_cluster.Cluster(_surroundings(), nature)
    server = oxia_service.ModelServer(cluster, contextvars.copy_context())
    listener = await server.start(RealNetwork(), _LOOPBACK, 0)
    try:
        yield f"oxia://{server.address}"
    finally:
        await listener.close()
        await server.close()


async def empty_store_url(kind: str, folder: str, held: AsyncExitStack) -> str:
    """The URL of an empty store of a kind; `held` ends its server."""
    if kind == "zookeeper":
        return await held.enter_async_context(modelled_zookeeper("replaced"))
    if kind == "oxia":
        return await held.enter_async_context(modelled_oxia())
    return f"memory:{folder}" if kind == "memory" else f"embedded:{folder}"
