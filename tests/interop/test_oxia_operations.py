"""Oxia's own operations on a real server: near keys, ranges, sequences, indexes, partitions."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.address import parse_address
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.keys import server_order
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.oxia import Oxia, oxia

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def server() -> Iterator[Oxia]:
    with oxia(3) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: Oxia) -> AsyncIterator[OxiaClient]:
    client = await OxiaClient.open(real_runtime(), parse_address(server.url))
    yield client
    await client.close()


async def put(client: OxiaClient, key: str, value: bytes = b"") -> pb.PutResponse:
    answer: pb.PutResponse = await client.write(pb.PutRequest(key=key, value=value))
    assert answer.status == pb.OK
    return answer


async def test_shards_share_the_keys(client: OxiaClient) -> None:
    await asyncio.gather(*(put(client, f"spread/{i}") for i in range(60)))
    parts = await asyncio.gather(*(link.keys_in(("spread/", "spread//")) for link in client.links))
    assert len(client.links) == 3
    assert all(parts), "every shard has some"
    assert sum(map(len, parts)) == 60
    for link, part in zip(client.links, parts, strict=True):
        assert all(client.link_of(key) is link for key in part)


async def test_server_sorts_as_we_do(client: OxiaClient) -> None:
    names = ["o", "o/a", "o/a-b", "o/a/x", "o/a-b/x", "o/a!/x", "o/ä", "o/a//b", "o/z/z/z", "o!"]
    await asyncio.gather(*(put(client, name) for name in names))
    found = [key for key in await client.keys_in(("", "")) if key[0] == "o"]
    assert found == sorted(names, key=server_order)
    for link in client.links:
        part = await link.keys_in(("", ""))
        assert part == sorted(part, key=server_order)


async def test_near_keys_of_all_shards(client: OxiaClient) -> None:
    for i in range(0, 50, 10):
        await put(client, f"near/{i:02}", b"%d" % i)

    async def near(key: str, comparison: int) -> str | None:
        answer = await client.get_near(key, comparison)
        return None if answer is None else answer.key

    assert await near("near/20", pb.FLOOR) == "near/20"
    assert await near("near/20", pb.LOWER) == "near/10"
    assert await near("near/20", pb.HIGHER) == "near/30"
    assert await near("near/21", pb.FLOOR) == "near/20"
    assert await near("near/21", pb.CEILING) == "near/30"


async def test_sequences_counted_by_the_server(client: OxiaClient) -> None:
    updates = client.sequence_updates("seq", "part")
    made = [await client.next_in_sequence("seq", b"", "part", [1, 5]) for _ in range(3)]
    assert made == [f"seq-{i:020}-{5 * i:020}" for i in (1, 2, 3)]
    async with asyncio.timeout(10):
        async for newest in updates:
            if newest == made[-1]:
                break
    assert (await client.get(made[0], partition="part")).status == pb.OK


async def test_range_is_deleted_on_every_shard(client: OxiaClient) -> None:
    await asyncio.gather(*(put(client, f"gone/{i}") for i in range(20)))
    await client.delete_range(("gone/", "gone//"))
    assert await client.keys_in(("gone/", "gone//")) == []


async def test_overridden_numbers_and_what_follows(client: OxiaClient) -> None:
    request = pb.PutRequest(
        key="/override", override_version_id=77, override_modifications_count=88
    )
    answer: pb.PutResponse = await client.write(request)
    assert (answer.version.version_id, answer.version.modifications_count) == (77, 88)
    refused = pb.PutRequest(key="/override", expected_version_id=78)
    assert (await client.write(refused)).status == pb.UNEXPECTED_VERSION_ID
    accepted = pb.PutRequest(key="/override", expected_version_id=77)
    assert (await client.write(accepted)).version.modifications_count == 89
    gone = pb.DeleteRequest(key="/override-nothing")
    assert (await client.write(gone)).status == pb.KEY_NOT_FOUND
