"""The contract of bulk work, kept by the engine that works in its own process."""

import pytest

from anabranch.migrations.engine.bulk_local import LocalBulk
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.bulk_engine import BulkEngineContract
from anabranch.testing.contracts.proving import proves

COPIED = "a_copy_is_the_same_and_a_second_one_copies_nothing"


@proves("spark.B1", "one process", {f"test_{COPIED}": "catching_up_copies_again"})
@proves("spark.B2", "found", {"test_exactly_what_is_not_the_same_is_found": "trees_may_have_more"})
class TestLocalBulkOnEmbeddedStores(BulkEngineContract):
    @pytest.fixture
    def engine(self):
        return LocalBulk(real_runtime())

    @pytest.fixture
    def left(self, tmp_path):
        return f"embedded:{tmp_path / 'left'}"

    @pytest.fixture
    def right(self, tmp_path):
        return f"embedded:{tmp_path / 'right'}"
