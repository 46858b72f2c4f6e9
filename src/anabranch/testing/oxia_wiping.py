"""Empties a real Oxia between tests that share one: it has no chroot to keep them apart."""

import asyncio

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.address import parse_address
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.oxia import Oxia


async def wipe(server: Oxia) -> None:
    """Delete every key of a server."""
    client = await OxiaClient.open(real_runtime(), parse_address(server.url))
    try:
        for link in client.links:
            found = await link.keys_in(("", ""))
            await asyncio.gather(*(link.write(pb.DeleteRequest(key=key)) for key in found))
    finally:
        await client.close()
