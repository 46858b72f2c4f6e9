"""Values that a client may send and nobody would: each is refused or harmless, and others go on."""

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from members import Member
from wire_peer import TOPIC, Wire, memory_stores, running_broker

from anabranch import limits
from anabranch.broker import BrokerSettings
from anabranch.broker.admission import EPOCH_PROPERTY
from anabranch.broker.chunks import ChunkOwners
from anabranch.broker.consumer import KeySharing
from anabranch.broker.key_hashes import Sticky, hash_of_key, murmur3
from anabranch.broker.limits import BATCH_MESSAGES_MAX, CHUNKED_MESSAGES_MAX, KEY_HASHES
from anabranch.broker.refusals import Refused
from anabranch.broker.schema_rules import Incompatible, SchemaText, check_change
from anabranch.broker.subscription_names import DEDUPLICATION_CURSOR
from anabranch.errors import FormatError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.policies import NamespacePolicies, PublishRate, decode
from anabranch.policies.effective import PolicyDefaults
from anabranch.testing.schema_changes import definition
from anabranch.wire import (
    BaseCommand,
    EntryMetadata,
    Message,
    MessageMetadata,
    SendReceipt,
    ServerError,
    build_entry,
    flow,
    requests,
    send_frame,
)

EXCLUSIVE = 1
DEDUPLICATED = BrokerSettings(policies=PolicyDefaults(deduplication_enabled=True))


def avro(schema: Any) -> SchemaText:
    return SchemaText(pb.Schema.Avro, definition(schema))


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": kind} for key, kind in fields.items()],
    }


def chain(length: int, last: str) -> list[Any]:
    """Records each of which holds the one before: deep by names, and flat as JSON."""
    return [record("r0", x=last), *(record(f"r{n}", x=f"r{n - 1}") for n in range(1, length))]


def fans(length: int, last: str) -> list[Any]:
    """Records each of which holds the one before twice: 2 ** length ways to the first."""
    rest = (record(f"r{n}", x=f"r{n - 1}", y=f"r{n - 1}") for n in range(1, length))
    return [record("r0", x=last), *rest]


def top(records: list[Any], definitions: str) -> dict[str, Any]:
    """A record that uses the last of some; they are defined where no comparison looks."""
    whole = record("top", **{definitions: records}, x=records[-1]["name"])
    whole["fields"][0]["default"] = None
    return whole


@pytest.mark.parametrize("alias", [{"a": 1}, ["a"], 7, None])
def test_aliases_of_a_schema_are_names(alias: Any) -> None:
    old = record("r", x="int")
    new = record("r", z="int")
    new["fields"][0]["aliases"] = [alias]
    with pytest.raises(Incompatible):
        check_change([avro(old)], avro(new), "BACKWARD")


def test_types_that_are_deep_by_names_are_refused() -> None:
    for length, is_refused in ((2000, True), (50, False)):
        old = avro(top(chain(length, "int"), "here"))
        new = avro(top(chain(length, "long"), "there"))
        if is_refused:
            with pytest.raises(Incompatible, match="types within types"):
                check_change([old], new, "BACKWARD")
        else:
            check_change([old], new, "BACKWARD")


def test_a_type_that_is_used_again_and_again_is_compared_once() -> None:
    old, new = avro(top(fans(40, "int"), "here")), avro(top(fans(40, "long"), "there"))
    check_change([old], new, "BACKWARD")
    with pytest.raises(Incompatible, match="found long, expecting int"):
        check_change([old], new, "FORWARD")


def test_a_comparison_that_takes_for_ever_is_given_up() -> None:
    written = [record(f"w{n}", **{f"x{n}": "int"}) for n in range(1000)]
    wanted = [record(f"v{n}", **{f"y{n}": "int"}) for n in range(1000)]
    old, new = record("r", x=written), record("r", x=[*wanted, record("any")])
    with pytest.raises(Incompatible, match="too much to compare"):
        check_change([avro(old)], avro(new), "BACKWARD")


def test_what_was_assumed_of_a_type_within_itself_is_not_believed_afterwards() -> None:
    """A list of a reader's union fails; what held only if it did not, does not hold either."""

    def node(leaf: str) -> dict[str, Any]:
        return record("node", next=["null", record("inner", back="node")], leaf=leaf)

    old = record("top", a=node("string"), b="inner")
    new = record("top", a=[node("int"), "null"], b="inner")
    with pytest.raises(Incompatible):
        check_change([avro(old)], avro(new), "BACKWARD")


async def test_a_refusal_that_quotes_a_client_can_be_sent() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        schema = pb.Schema(name="s", type=pb.Schema.Avro)
        schema.schema_data = json.dumps(record("r", x="\ud800" + "x" * 100_000)).encode()
        answer = await wire.ask(requests.producer(TOPIC, 1, 7, schema=schema))
        assert answer.type == BaseCommand.ERROR
        assert answer.error.error == ServerError.IncompatibleSchema
        assert len(answer.error.message) < 2000


@pytest.mark.parametrize("epoch", [1, 2**63, 2**64 - 1])
async def test_an_epoch_that_was_never_drawn_counts_for_nothing(epoch: int) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        for number in (1, 2):
            answer = await wire.ask(
                requests.producer(TOPIC, number, 9, access_mode=EXCLUSIVE, topic_epoch=epoch)  # type: ignore[arg-type]
            )
            assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
            assert answer.producer_success.topic_epoch == number - 1
            await wire.ask(requests.close_producer(number, 10))


@pytest.mark.parametrize("stored", [str(2**64 - 1), "9" * 5000, "²", "-3", ""])
async def test_an_epoch_that_is_stored_and_cannot_be_leaves_room_for_more(stored: str) -> None:
    stores = await memory_stores()
    async with running_broker(stores=stores) as broker:
        await (await Wire(broker).connect()).producer()
        (topic,) = broker.topics.all()
        await topic.ledger.set_properties({EPOCH_PROPERTY: stored})
    async with running_broker(stores=stores) as broker:
        wire = await Wire(broker).connect()
        for number in (1, 2):
            answer = await wire.ask(
                requests.producer(TOPIC, number, 9, access_mode=EXCLUSIVE)  # type: ignore[arg-type]
            )
            assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
            await wire.ask(requests.close_producer(number, 10))
    await stores[0].close()


def sent(wire: Wire, sequence_id: int, highest: int | None = None, messages: int = 1) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    if messages != 1:
        metadata.num_messages_in_batch = messages
    frame = send_frame(
        1, sequence_id, messages, build_entry(metadata, b"x"), highest_sequence_id=highest
    )
    wire.session.data_received(b"".join(frame))


@pytest.mark.parametrize(("first", "highest"), [(2**63, None), (2**64 - 1, None), (5, 2**63)])
async def test_sequence_ids_that_cannot_be_remembered_are_refused(
    first: int, highest: int | None
) -> None:
    stores = await memory_stores()
    async with running_broker(DEDUPLICATED, stores=stores) as broker:
        wire = await Wire(broker).connect()
        await wire.producer(name="p")
        sent(wire, 1)
        sent(wire, first, highest)
        sent(wire, 9)
        assert type(await wire.next()) is SendReceipt
        refused = await wire.next()
        assert isinstance(refused, BaseCommand), refused
        assert refused.send_error.error == ServerError.NotAllowedError
        assert type(await wire.next()) is SendReceipt
    async with running_broker(DEDUPLICATED, stores=stores) as broker:
        wire = await Wire(broker).connect()
        answer = await wire.ask(requests.producer(TOPIC, 1, 9, name="p"))
        assert answer.producer_success.last_sequence_id == 9
    await stores[0].close()


async def test_sequence_ids_stored_before_they_were_looked_at_do_no_harm() -> None:
    stores = await memory_stores()
    async with running_broker(stores=stores) as broker:
        wire = await Wire(broker).connect()
        await wire.producer(name="p")
        sent(wire, 2**64 - 1)
        assert type(await wire.next()) is SendReceipt
        (topic,) = broker.topics.all()
        await topic.ledger.open_cursor(DEDUPLICATION_CURSOR, initial="earliest")
    async with running_broker(DEDUPLICATED, stores=stores) as broker:
        wire = await Wire(broker).connect()
        await wire.producer(name="p")
        sent(wire, 3)
        assert type(await wire.next()) is SendReceipt
        (topic,) = broker.topics.all()
        assert topic.deduplication is not None
        topic.deduplication.snapshot()
        await topic.ledger.cursors[DEDUPLICATION_CURSOR].flushed()
        assert dict(topic.ledger.cursors[DEDUPLICATION_CURSOR].properties) == {"p": 3}
    await stores[0].close()


@pytest.mark.parametrize("number", [10**400, 2**63, -(2**63) - 1])
@pytest.mark.parametrize(
    "document",
    [
        {"message_ttl_in_seconds": 0},
        {"publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": 0}}},
        {"persistence": {"managedLedgerMaxMarkDeleteRate": 0}},
    ],
)
def test_numbers_of_policies_fit_where_others_keep_them(
    number: int, document: dict[str, Any]
) -> None:
    text = json.dumps(document)
    decode(NamespacePolicies, text.replace(": 0", f": {2**63 - 1}").encode())
    with pytest.raises(FormatError, match="out of range"):
        decode(NamespacePolicies, text.replace(": 0", f": {number}").encode())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_policies_hold_no_numbers_that_are_none(number: str) -> None:
    text = f'{{"persistence": {{"managedLedgerMaxMarkDeleteRate": {number}}}}}'
    with pytest.raises(FormatError):
        decode(NamespacePolicies, text.encode())


def test_ten_thousand_ranges_of_one_consumer_are_checked_in_no_time() -> None:
    """Each against each would be a thousand million comparisons."""
    ranges = tuple((2 * number, 2 * number) for number in range(KEY_HASHES // 2))
    division = Sticky()
    first, second = Member("a"), Member("b")
    division.add(first, KeySharing(sticky=True, ranges=ranges))
    odd = tuple((start + 1, end + 1) for start, end in reversed(ranges))
    division.add(second, KeySharing(sticky=True, ranges=odd))
    assert division.owner(10) is first
    assert division.owner(11) is second


@pytest.mark.parametrize(
    "ranges",
    [
        ((0, 5), (5, 9)),
        ((0, 9), (3, 4)),
        ((3, 4), (0, 9)),
        ((7, 7), (7, 7)),
        ((20, 30),),
    ],
)
def test_ranges_that_overlap_are_refused_and_change_nothing(
    ranges: tuple[tuple[int, int], ...],
) -> None:
    division, first = Sticky(), Member("a")
    division.add(first, KeySharing(sticky=True, ranges=((20, 29), (10, 12))))
    with pytest.raises(Refused, match="conflicts"):
        division.add(Member("b"), KeySharing(sticky=True, ranges=ranges))
    assert [division.owner(each) for each in (0, 3, 9, 30)] == [None] * 4
    assert division.owner(20) is first


def test_what_is_remembered_of_keys_does_not_grow_with_them() -> None:
    long_keys = [b"%d" % number + bytes(limits.MIB) for number in range(20)]
    before = [sys.getrefcount(key) for key in long_keys]
    hashes = [hash_of_key(key) for key in long_keys]
    assert [sys.getrefcount(key) for key in long_keys] == before
    assert len(set(hashes)) > 10, "they are told apart"
    assert hashes == [hash_of_key(key) for key in long_keys]
    assert hash_of_key(b"key") == murmur3(b"key") % KEY_HASHES


def chunk(uuid: str, number: int, count: int = 3) -> EntryMetadata:
    return EntryMetadata(
        MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=1,
            uuid=uuid,
            chunk_id=number,
            num_chunks_from_msg=count,
        )
    )


def test_messages_whose_chunks_never_end_are_forgotten() -> None:
    owners = ChunkOwners()
    first, other = Member("a"), Member("b")
    for number in range(3 * CHUNKED_MESSAGES_MAX):
        owners.sent(chunk(f"{number} {'x' * 5000}", 0), first)
        assert len(owners._owners) <= CHUNKED_MESSAGES_MAX
    assert all(len(uuid) < 200 for uuid in owners._owners)
    newest = f"{3 * CHUNKED_MESSAGES_MAX - 1} {'x' * 5000}"
    assert owners.owner(chunk(newest, 1), other) is first
    assert owners.owner(chunk(f"0 {'x' * 5000}", 1), other) is other


@pytest.mark.parametrize("claimed", [-5, 0, 2**31 - 1])
async def test_a_number_of_messages_that_cannot_be_is_not_counted(claimed: int) -> None:
    """Neither to be let through for nothing nor to hold everybody else up for years."""
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.producer()
        (topic,) = broker.topics.all()
        topic.apply(replace(topic.policies, publish_rate=PublishRate(messages=10**6)))
        sent(wire, 0, messages=claimed)
        assert type(await wire.next()) is SendReceipt
        assert 1 <= broker.messages_in <= BATCH_MESSAGES_MAX
        assert topic._publish_throttle is not None
        assert 0 <= topic._publish_throttle._throttle.wait_s() < 1
        # Nor does it starve who reads it.
        await other.subscribe(initial_position=1)
        other.session.data_received(flow(1, BATCH_MESSAGES_MAX + 1))
        assert type(await other.next()) is Message
        ((consumer, _, _),) = other.session.consumers.values()
        assert 1 <= consumer.permits <= BATCH_MESSAGES_MAX


async def test_names_of_clients_are_not_kept_at_any_length() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        for request in (
            requests.producer(TOPIC, 1, 2, name="x" * 100_000),
            requests.subscribe(TOPIC, "s", 3, 1, 2, consumer_name="x" * 100_000),  # type: ignore[arg-type]
        ):
            assert (await wire.ask(request)).error.error == ServerError.NotAllowedError
