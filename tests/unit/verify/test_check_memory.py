"""A part of ten million records, with that part of the room, takes that part of 256 MiB."""

import sqlite3
from functools import partial

import pytest

from anabranch.limits import MIB
from anabranch.testing.traced_memory import least_peak_bytes
from anabranch.verify.limits import CHECK_MAP_ENTRIES_MAX, SEND_BLOCKS_MAX
from anabranch.verify.rules import Judge
from anabranch.verify.sends import BlockPool
from anabranch.verify.spill import private_database
from anabranch.verify.verdict import conclude
from benchmarks.history_check import MEMORY_MIB_MAX, RECORDS, SHAPES, _records

PART = 200
INTERPRETER_MIB = 40
"""What Python, the modules and the read buffers take, however long the history is."""


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_of_a_check_is_bounded(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = partial(BlockPool, blocks_max=SEND_BLOCKS_MAX // PART)
    monkeypatch.setattr("anabranch.verify.facts.BlockPool", pool)
    for module in ("facts", "order_rules", "cursor_rules"):
        entries = CHECK_MAP_ENTRIES_MAX // PART
        monkeypatch.setattr(f"anabranch.verify.{module}.CHECK_MAP_ENTRIES_MAX", entries)
    opened = []

    def noted() -> sqlite3.Connection:
        opened.append(private_database())
        return opened[-1]

    monkeypatch.setattr("anabranch.verify.spill.private_database", noted)

    def check() -> None:
        judge = Judge(dedup=False)
        for _, record in _records(RECORDS // PART, shape):
            judge.see(record)
        verdict = conclude(judge)
        judge.facts.spill.close()
        assert verdict.counts["records"] >= RECORDS // PART
        assert {rule.id for rule in verdict.rules if rule.violations} <= {"C14"}

    bound_bytes = (MEMORY_MIB_MAX - INTERPRETER_MIB) * MIB // PART
    assert least_peak_bytes(check, enough_bytes=bound_bytes) < bound_bytes
    assert opened, "the room was too small for everything"
