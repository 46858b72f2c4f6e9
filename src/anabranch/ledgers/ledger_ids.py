"""The one authority for ledger ids: every ledger ever created gets an id above all before it.

Pulsar takes its ids from a generator of the metadata store in use, so that changing the store
could hand out an id twice. Here the counter is a plain document that moves with all the others,
and it is written only once for a block of ids: most creations need no metadata write. Ids of a
block that were not used when a process ends are never used; gaps are harmless, repeats are not.
"""

import json

from anabranch import limits
from anabranch.errors import BadVersion, ConflictError, FormatError
from anabranch.metadata.store import ABSENT, Expected, MetadataStore
from anabranch.runtime.serial_work import SerialWork
from anabranch.runtime.tasks import Tasks

PATH = "/anabranch/ledger-ids"
_FORMAT = "anabranch.ledger-ids"
_VERSION = 1
_FIRST_ID = 1


def _decode(value: bytes) -> int:
    """Read the lowest id that was never handed out."""
    try:
        document = json.loads(value)
    except ValueError:
        raise FormatError(f"{PATH} is not JSON: {value[:40]!r}") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise FormatError(f"{PATH} is not a document of format {_FORMAT}")
    if document.get("version") != _VERSION:
        raise FormatError(
            f"{PATH} has version {document.get('version')!r}; this build knows {_VERSION}"
        )
    following = document.get("next")
    if not isinstance(following, int) or following < 0:
        raise FormatError(f"{PATH} has no usable counter: {following!r}")
    return following


def _encode(following: int) -> bytes:
    document = {"format": _FORMAT, "version": _VERSION, "next": following}
    return json.dumps(document).encode()


class LedgerIds:
    """Hands out ledger ids; any number of processes may share the counter."""

    def __init__(self, metadata: MetadataStore, tasks: Tasks) -> None:
        self._metadata = metadata
        self._work = SerialWork("ledger ids", tasks)
        self._following = 0
        self._end = 0

    async def next(self) -> int:
        """Return an id above every one handed out before.

        Raises:
            FormatError: if the counter is of an unknown format.
            ConflictError: if others keep changing the counter.
        """
        while self._following == self._end:
            await self._work.run(self._reserve)
        ledger_id = self._following
        self._following += 1
        return ledger_id

    async def raise_floor(self, floor: int) -> None:
        """Make every id from now on at least `floor`, in this and all other processes.

        Used before ledgers are served that got their ids elsewhere. Other processes must not hold
        reserved ids below the floor: call it before they start, or restart them.
        """
        await self._work.run(lambda: self._advance(floor, 0))
        self._following = self._end = 0

    async def _reserve(self) -> None:
        if self._following == self._end:
            end = await self._advance(0, limits.LEDGER_IDS_RESERVED)
            self._following, self._end = end - limits.LEDGER_IDS_RESERVED, end

    async def _advance(self, floor: int, count: int) -> int:
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            node = await self._metadata.get(PATH)
            following = _FIRST_ID if node is None else _decode(node.value)
            end = max(following, floor) + count
            if end == following:
                return end
            expected: Expected = ABSENT if node is None else node.stat.version
            try:
                await self._metadata.put(PATH, _encode(end), expected)
            except BadVersion:
                continue
            return end
        raise ConflictError(
            f"{PATH} changed {limits.CONDITIONAL_WRITE_TRIES_MAX} times while it was being written"
        )
