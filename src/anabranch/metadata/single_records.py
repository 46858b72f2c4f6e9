"""One node out of an export: what a store does that can look at a single one no better way."""

from collections.abc import AsyncIterator

from anabranch.metadata.store import Record


async def first_of(records: AsyncIterator[Record]) -> Record | None:
    """The node that an export begins with; the rest is not read."""
    try:
        async for record in records:
            return record
    finally:
        await records.aclose()  # type: ignore[attr-defined]
    return None
