"""Ledger stores are opened by URL, and unknown ones are refused by name."""

import pytest

from anabranch.errors import ConfigError
from anabranch.ledgers.factory import open_ledgers
from anabranch.runtime.real import real_runtime


async def test_embedded_store_is_kept_in_its_folder(tmp_path):
    url = f"embedded:{tmp_path}/ledgers"
    store = await open_ledgers(url, real_runtime())
    await store.create(7)
    assert store.failure is None
    await store.close()
    again = await open_ledgers(url, real_runtime())
    assert [ledger_id async for ledger_id in again.list()] == [7]
    await again.close()


async def test_memory_store_begins_empty():
    store = await open_ledgers("memory:", real_runtime())
    assert [ledger_id async for ledger_id in store.list()] == []
    assert store.failure is None
    await store.close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("memory:x", "takes no name"),
        ("embedded:", "needs a folder"),
        ("bookies:x", "unknown ledger store 'bookies:x': known are"),
        ("", "unknown ledger store"),
    ],
)
async def test_wrong_address_is_refused(url, text):
    with pytest.raises(ConfigError, match=text):
        await open_ledgers(url, real_runtime())
