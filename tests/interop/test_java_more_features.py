"""What the Java client can do beside letters and types sees the same on ours and on Pulsar."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX
from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.java_programs import named_lines, said_by
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("MoreFeatures.java")
PULSAR = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeduplicationEnabled": "true",
    # Else what is due later may come up to a second too early, and before what is due sooner.
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "delayedDeliveryTickTimeMillis": "100",
    # As in Pulsar's own standalone.conf: without it chunks of the largest size are not stored.
    "nettyMaxFrameSizeBytes": str(BOOKKEEPER_FRAME_BYTES_MAX),
}
COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
SEEN = [
    "compression [" + ", ".join(f"{name}=10" for name in COMPRESSIONS for _ in range(2)) + "]",
    "chunks [true, k, v, small]",
    "encrypted [secret, false, [k]]",
    "modes [ProducerFencedException, ProducerBusyException, true, ProducerFencedException]",
    "fencing producer sends [true]",
    "deduplicated [-1, 7, 0:3, 0:5, 0:7, end]",
    "delayed [now, later, late] [true, true, true]",
    "partitions [204, 3, [0, 1, 2], 60, true]",
    "non-persistent [passes]",
    "rest of the batch [1, 2, 4, 5, 7, 8]",
    "more schemas [avro=true, json=true, protobuf=true, native=true, bytes=true]",
    "records [avro=tea2, json=tea2]",
    "another schema [IncompatibleSchemaException]",
]


@pytest.fixture(params=["ours", "pulsar"])
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    if request.param == "ours":
        with anabranch_standalone(options=("--deduplication",)) as running:
            yield running
    else:
        with pulsar_standalone(settings=PULSAR) as running:
            yield running


@pytest.mark.goal("core.B2", part="encryption", broken_by="encrypted_entries_are_left_out")
@pytest.mark.goal("core.B3", part="stored once", broken_by="duplicates_are_stored")
@pytest.mark.goal("core.B10", part="all types")
def test_the_java_client_sees_the_same_features(
    server: Standalone, request: pytest.FixtureRequest
) -> None:
    is_pulsar = request.node.callspec.params["server"] == "pulsar"
    name = f"java-{time.monotonic_ns()}"
    said = named_lines(said_by(PROGRAM, server.service_url, name, server.web_url), SEEN)
    if is_pulsar:
        # Whom Pulsar fences while it sends may hear of it by its own time-out only.
        said = [line.replace("TimeoutException]", "ProducerFencedException]") for line in said]
    assert said == SEEN
