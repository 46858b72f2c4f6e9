"""Random walks through the replication protocol of BookKeeper, and the mistakes they would find."""

import pytest

from anabranch.testing.bookies.walks import Walk
from anabranch.testing.planted import applied

WALKS = 4_000
WALKS_UNTIL_FOUND = 10_000


@pytest.mark.timeout(120)
@pytest.mark.goal("core.L3", part="protocol", broken_by="replaced_bookie_counts")
@pytest.mark.goal("core.L3", part="protocol", broken_by="new_bookie_misses_entries")
@pytest.mark.goal("core.L3", part="protocol", broken_by="confirms_while_the_ensemble_changes")
@pytest.mark.goal("core.L4", part="protocol", broken_by="recovery_reads_do_not_fence")
@pytest.mark.goal("core.L4", part="protocol", broken_by="recovery_begins_before_the_segment")
@pytest.mark.goal("core.L4", part="protocol", broken_by="one_absent_is_the_end")
def test_confirmed_entries_are_where_the_metadata_say_on_every_walk() -> None:
    for seed in range(WALKS):
        try:
            Walk(seed).run()
        except AssertionError as error:
            pytest.fail(f"walk {seed}: {error}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "bug",
    [
        "replaced_bookie_counts",
        "new_bookie_misses_entries",
        "confirms_while_the_ensemble_changes",
        "recovery_reads_do_not_fence",
        "recovery_begins_before_the_segment",
        "one_absent_is_the_end",
    ],
)
def test_walks_find(bug: str) -> None:
    with applied(bug):
        for seed in range(WALKS_UNTIL_FOUND):
            try:
                Walk(seed).run()
            except AssertionError:
                return
    pytest.fail(f"{bug} was not found by {WALKS_UNTIL_FOUND} walks")
