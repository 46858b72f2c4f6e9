"""The Java client of Pulsar 4.0.8 on our server, with the programs that the newest one runs too.

What they see is compared with a real Pulsar where the newest client runs them.
"""

import time
from collections.abc import Iterator
from types import ModuleType

import pytest
import test_java_letters_and_types
import test_java_more_features
import test_java_readers_and_seeks

from anabranch.testing.servers import anabranch_standalone
from anabranch.testing.servers.java_programs import TOOLS, named_lines, said_by
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
WALKS = [test_java_letters_and_types, test_java_more_features, test_java_readers_and_seeks]


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with anabranch_standalone(options=("--deduplication",)) as running:
        yield running


@pytest.mark.goal("core.B2", part="encryption")
@pytest.mark.goal("core.B4", part="key_shared")
@pytest.mark.goal("core.B5", part="seek by id")
@pytest.mark.goal("core.B10", part="all types")
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__.removeprefix("test_java_"))
def test_it_sees_what_the_newest_one_sees(walk: ModuleType, server: Standalone) -> None:
    name = f"java-{time.monotonic_ns()}"
    said = said_by(walk.PROGRAM, server.service_url, name, server.web_url, libraries=TOOLS)
    assert named_lines(said, walk.SEEN) == walk.SEEN
