"""Two trees side by side, and the sums they are compared by."""

from collections.abc import AsyncIterator
from itertools import permutations

import pytest

from anabranch.errors import InputError
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.transfer.comparing import Difference, Kind, compare
from anabranch.metadata.transfer.digest import NO_NODES, Digest

A = Record("/a", b"1", 2, 3, 4, 5)


async def each(records: list[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


async def differences(
    left: list[Record], right: list[Record], **options: bool
) -> list[tuple[str, str, tuple[str, ...]]]:
    found: list[Difference] = [d async for d in compare(each(left), each(right), **options)]
    return [(d.kind.value, d.path, d.fields) for d in found]


def named(*paths: str) -> list[Record]:
    return [Record(path, b"", 0, 0, 0) for path in paths]


async def test_what_is_on_one_side_only() -> None:
    left = named("/", "/a", "/a/x", "/a-b", "/c")
    right = named("/", "/a", "/a/y", "/a-b", "/b")
    assert await differences(left, right) == [
        (Kind.ONLY_LEFT.value, "/a/x", ()),
        (Kind.ONLY_RIGHT.value, "/a/y", ()),
        (Kind.ONLY_RIGHT.value, "/b", ()),
        (Kind.ONLY_LEFT.value, "/c", ()),
    ]
    assert await differences(left, left) == []
    assert len(await differences([], right)) == len(right)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("value", A._replace(value=b"2")),
        ("version", A._replace(native_version=9)),
        ("sequence", A._replace(next_sequence=9)),
        ("indexes", A._replace(indexes=(IndexKey("i", "k"),))),
        ("access", A._replace(access=(AccessRight(1, "ip", "::1"),))),
    ],
)
async def test_every_field_counts(field: str, other: Record) -> None:
    assert await differences([A], [other]) == [("differs", "/a", (field,))]
    assert await differences([A], [other], content_only=True) == (
        [("differs", "/a", ("value",))] if field == "value" else []
    )
    assert (NO_NODES.plus(A).exact == NO_NODES.plus(other).exact) is False
    assert (NO_NODES.plus(A).content == NO_NODES.plus(other).content) is (field != "value")


async def test_times_and_ephemerals_count_on_demand() -> None:
    later = A._replace(modified_ms=99)
    assert await differences([A], [later]) == []
    assert await differences([A], [later], times=True) == [("differs", "/a", ("times",))]
    mine = A._replace(session=7)
    assert await differences([], [mine]) == []
    assert await differences([], [mine], ephemerals=True) == [("only right", "/a", ())]
    assert await differences([A], [mine], ephemerals=True) == [("differs", "/a", ("ephemeral",))]


async def test_disorder_is_refused() -> None:
    with pytest.raises(InputError, match="/a does not come in path order"):
        await differences(named("/b", "/a"), named("/c"))


def digest_of(records: list[Record]) -> Digest:
    digest = NO_NODES
    for record in records:
        digest = digest.plus(record)
    return digest


@pytest.mark.goal("core.M8", part="digest", broken_by="digest_of_the_last")
def test_digest_knows_every_node_in_any_order() -> None:
    records = named("/a", "/b", "/c")
    whole = digest_of(records)
    assert {digest_of(list(order)) for order in permutations(records)} == {whole}
    for missing in range(3):
        assert digest_of(records[:missing] + records[missing + 1 :]).content != whole.content
    assert digest_of([*named("/a"), *named("/a"), *named("/b")]).content != whole.content
    assert (
        digest_of([Record("/a", b"b", 0, 0, 0)]).content
        != digest_of([Record("/ab", b"", 0, 0, 0)]).content
    ), "a path does not run into its value"
    assert digest_of([A._replace(session=3)]) == NO_NODES


async def test_rights_that_were_hidden_from_one_reader_are_no_difference() -> None:
    whole, hidden, other = (
        [A._replace(access=(AccessRight(31, "digest", identity),))]
        for identity in ("owner:abc=", "owner:x", "other:x")
    )
    assert await differences(whole, hidden) == await differences(hidden, whole) == []
    assert await differences(whole, other) == [(Kind.DIFFERS.value, "/a", ("access",))]
