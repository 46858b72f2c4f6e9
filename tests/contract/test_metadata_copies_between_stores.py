"""Copies between every ordered pair of the metadata stores that need no server of others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.metadata.store import MetadataStore
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.testing.contracts.metadata_transfer import Transfers
from anabranch.testing.contracts.proving import proves
from anabranch.testing.contracts.transfer_places import PLACES, empty_store

PROVEN = {
    "test_everything_arrives": "copy_changes_values",
    "test_ephemeral_nodes_are_left_out": "copy_takes_ephemerals",
    "test_next_sequential_id_is_larger_than_any_issued": "copy_loses_sequences",
    "test_versions_can_be_used_or_are_mapped": "copy_loses_versions",
    "test_cut_before_any_checkpoint_and_resumed": "resume_forgets_the_open_span",
    "test_source_that_changed_is_not_gone_on_with": "resume_trusts_the_checkpoint",
    "test_occupied_target_is_refused_and_left_as_it_is": "copy_looks_too_late",
}


class FromEveryStore(Transfers):
    place = ""

    @pytest.fixture(params=PLACES)
    async def source(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[MetadataStore]:
        async with empty_store(request.param, f"{tmp_path}/source") as store:
            yield store

    @pytest.fixture
    async def target(self, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        async with empty_store(self.place, f"{tmp_path}/target") as store:
            yield store

    @pytest.fixture
    def keeping(self) -> Keeping:
        return Keeping()


@proves("core.M8", "memory", PROVEN)
class TestIntoMemory(FromEveryStore):
    place = "memory"


@proves("core.M8", "embedded", PROVEN)
class TestIntoEmbedded(FromEveryStore):
    place = "embedded"


@proves("core.M8", "served", PROVEN)
class TestIntoServed(FromEveryStore):
    place = "served"
