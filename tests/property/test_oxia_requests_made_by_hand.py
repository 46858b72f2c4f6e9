"""Puts that are written as bytes by hand: what the protocol's own messages make of them."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.encoding import Puts

LENGTHS = (0, 1, 127, 128, 16_383, 16_384, 3_000_000)
PUTS = st.tuples(
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.binary(max_size=300) | st.sampled_from([b"v" * length for length in LENGTHS]),
    st.none() | st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.lists(st.tuples(st.text("ab", min_size=1), st.text("xy")), max_size=2),
)


@given(shard=st.integers(0, 300), puts=st.lists(PUTS, max_size=5))
def test_requests_are_those_of_the_protocol(
    shard: int, puts: list[tuple[str, bytes, int | None, int, list[tuple[str, str]]]]
) -> None:
    made = Puts(shard)
    wanted = pb.WriteRequest(shard=shard)
    for key, value, version, changes, indexes in puts:
        keys = [pb.SecondaryIndex(index_name=name, secondary_key=one) for name, one in indexes]
        made.add(key, value, version, changes, keys)
        wanted.puts.add(
            key=key,
            value=value,
            expected_version_id=-1,
            override_version_id=version,
            override_modifications_count=changes,
            secondary_indexes=keys,
        )
    assert pb.WriteRequest.FromString(made.SerializeToString()) == wanted
    assert made.keys == [put[0] for put in puts]
