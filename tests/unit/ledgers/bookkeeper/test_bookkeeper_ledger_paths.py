"""Where ledgers are in a metadata store, and documents that say so."""

import pytest

from anabranch.errors import FormatError, InputError, InvalidPath
from anabranch.ledgers.bookkeeper.ledger_paths import (
    Layout,
    LedgerPaths,
    decode_layout,
    encode_layout,
)

HIERARCHICAL = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
LONG = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (2**31 - 2, "/ledgers/21/4748/L3646"),
        (2**31 - 1, "/ledgers/000/0000/0021/4748/L3647"),
        (2**63 - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_ids_become_paths_and_back(ledger_id: int, path: str) -> None:
    paths = LedgerPaths()
    assert paths.ledger(ledger_id) == path
    assert paths.ledger_id(path) == ledger_id


def test_one_layout_has_long_paths_alone() -> None:
    paths = LedgerPaths("/deep/ledgers", Layout.LONG_HIERARCHICAL)
    assert paths.ledger(7) == "/deep/ledgers/000/0000/0000/0000/L0007"
    assert paths.ledger_id("/deep/ledgers/000/0000/0000/0000/L0007") == 7
    assert paths.ledger_id("/deep/ledgers/00/0000/L0007") is None


@pytest.mark.parametrize(
    "path",
    [
        "/ledgers",
        "/ledgers/00",
        "/ledgers/00/0000",
        "/ledgers/00/0000/0000",
        "/ledgers/00/0000/L00000",
        "/ledgers/0/0000/L0000",
        "/ledgers/99/9999/L9999",
        "/ledgers/7",
        "/ledgers/000/0000/0000/0000/L0007",
        "/ledgers/999/9999/9999/9999/L9999",
        "/ledgers/00/0000/L0000/below",
        "/ledgers/available/bookie:3181",
        "/other/00/0000/L0000",
        "/ledgers/\u0660\u0660/0000/L0000",
    ],
)
def test_other_paths_are_no_ledgers(path: str) -> None:
    assert LedgerPaths().ledger_id(path) is None


@pytest.mark.parametrize("ledger_id", [-1, 2**63])
def test_what_is_no_id_has_no_path(ledger_id: int) -> None:
    with pytest.raises(InputError):
        LedgerPaths().ledger(ledger_id)


def test_a_root_is_a_folder() -> None:
    with pytest.raises(InputError, match="folder of their own"):
        LedgerPaths("/")
    with pytest.raises(InvalidPath):
        LedgerPaths("ledgers")


@pytest.mark.parametrize(
    ("layout", "document"), [(Layout.HIERARCHICAL, HIERARCHICAL), (Layout.LONG_HIERARCHICAL, LONG)]
)
def test_a_layout_is_the_document_that_bookkeeper_writes(layout: Layout, document: bytes) -> None:
    assert encode_layout(layout) == document
    assert decode_layout("/ledgers/LAYOUT", document) is layout


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "not a layout"),
        (b"\xff\xfe", "not a layout"),
        (b"1\nflat:1", "not a layout of version 2"),
        (b"3" + HIERARCHICAL[1:], "not a layout of version 2"),
        (b"2", "not a layout"),
        (HIERARCHICAL + b"\nmore", "not a layout"),
        (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", "only the hierarchical"),
        (
            b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1",
            "only the hierarchical",
        ),
        (b"2\ncom.example.OwnFactory:1", "unknown layout 'com.example.OwnFactory'"),
        (b"2\nHierarchicalLedgerManagerFactory:1", "unknown layout"),
        (HIERARCHICAL[:-1] + b"2", "version '2'"),
        (HIERARCHICAL[:-2], "version ''"),
    ],
)
def test_other_layouts_are_refused_by_name(document: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as error:
        decode_layout("/ledgers/LAYOUT", document)
    assert "/ledgers/LAYOUT" in str(error.value)
