"""Random walks through the replication protocol of BookKeeper, and the mistakes they would find."""

import pytest

from anabranch.testing.bookies.walks import Walk
from anabranch.testing.planted import applied

WALKS = 4_000
WALKS_UNTIL_FOUND = 10_000


def first_violation(walks: int) -> str | None:
    """What the first walk finds that finds anything."""
    for seed in range(walks):
        try:
            Walk(seed).run()
        except AssertionError as error:
            return f"walk {seed}: {error}"
    return None


@pytest.mark.timeout(120)
@pytest.mark.goal("core.L3", part="protocol", broken_by="replaced_bookie_counts")
@pytest.mark.goal("core.L3", part="protocol", broken_by="new_bookie_misses_entries")
@pytest.mark.goal("core.L3", part="protocol", broken_by="confirms_while_the_ensemble_changes")
@pytest.mark.goal("core.L4", part="protocol", broken_by="recovery_reads_do_not_fence")
@pytest.mark.goal("core.L4", part="protocol", broken_by="recovery_begins_before_the_segment")
@pytest.mark.goal("core.L4", part="protocol", broken_by="one_absent_is_the_end")
def test_confirmed_entries_are_where_the_metadata_say_on_every_walk() -> None:
    assert first_violation(WALKS) is None


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
        assert first_violation(WALKS_UNTIL_FOUND) is not None
