"""Where the state of one cursor is stored: in its node, or in a ledger of its own when large.

The node is what counts: it holds the state itself or names the ledger whose last entry does. A
cursor ledger is named only once it holds an entry, and deleted only once the node names something
else, so a crash leaves at most a ledger that nobody names. As in Pulsar, a state that went to a
ledger stays there until that ledger is full or the cursor is closed.
"""

from collections.abc import Mapping

from anabranch import limits
from anabranch.errors import Fenced, OutcomeUnknown, StoreFailed
from anabranch.ledgers.store import LedgerWriter
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.durable_append import append_durably
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import (
    IN_NODE,
    encode_cursor,
    encode_cursor_pointer,
    encode_position_entry,
)
from anabranch.managed_ledger.opening import discard_ledger
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS, OwnedNode


class StoredCursor:
    """The stored side of one cursor. One call at a time."""

    __slots__ = (
        "_bytes",
        "_entry_in_doubt",
        "_env",
        "_in_doubt",
        "_ledger_id",
        "_name",
        "_named_properties",
        "_node",
        "_writer",
    )

    def __init__(
        self, name: str, node: OwnedNode, env: Environment, *, ledger_id: int = IN_NODE
    ) -> None:
        self._name = name
        self._node = node
        self._env = env
        self._ledger_id = ledger_id
        """The ledger that the node names; a previous owner's until the first write."""
        self._writer: LedgerWriter | None = None
        """Of the ledger that the node names or is to name next."""
        self._bytes = 0
        """Appended to it."""
        self._in_doubt = False
        """Whether a write of the node that did not succeed may yet have taken effect."""
        self._entry_in_doubt = False
        """Whether the ledger that the node names may hold an entry whose append failed."""
        self._named_properties: Mapping[str, str] | None = None
        """The texts that the node holds beside the name of the ledger; None if not known."""

    @property
    def path(self) -> str:
        """The path of the node."""
        return self._node.path

    def is_in_doubt_after(self, error: Exception) -> bool:
        """Whether the state of a write that failed like this may be what a new owner reads."""
        return self._entry_in_doubt or isinstance(error, StoreFailed | OutcomeUnknown)

    async def write(
        self,
        state: Acknowledged,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
    ) -> None:
        """Make a state durable, as it is when this is called.

        Raises:
            Fenced: if another owner took over.
            CursorTooLarge: if it does not even fit an entry; what was stored before stays.
        """
        full = self._is_full()
        if self._ledger_id == IN_NODE or full:
            value = encode_cursor(state, properties, cursor_properties)
            if value is not None:
                await self._publish(IN_NODE, value)
                return
        entry = encode_position_entry(state, properties, self._name)
        mark_delete = state.mark_delete
        if self._writer is None or full:
            self._writer = await self._create()
            self._bytes = 0
        ledger_id = self._writer.ledger_id
        await self._append(self._writer, entry)
        if ledger_id != self._ledger_id or cursor_properties != self._named_properties:
            # Should the node not be written, a new owner reads the entry all the same.
            self._entry_in_doubt |= ledger_id == self._ledger_id
            pointer = encode_cursor_pointer(ledger_id, mark_delete, properties, cursor_properties)
            await self._publish(ledger_id, pointer)
            self._named_properties = cursor_properties

    async def settle(
        self,
        state: Acknowledged,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
    ) -> None:
        """Leave a state that is durable in its node, if it fits there: it is read at once."""
        if self._ledger_id == IN_NODE:
            return
        value = encode_cursor(state, properties, cursor_properties)
        if value is not None:
            await self._publish(IN_NODE, value)
        elif self._writer is not None:
            await self._writer.close()

    async def delete(self) -> None:
        """Remove the cursor.

        Raises:
            Fenced: if another owner has it.
        """
        await self._node.delete()
        await self._discard_all_but(IN_NODE)

    def _is_full(self) -> bool:
        return self._writer is not None and (
            self._writer.last_entry_id + 1 >= limits.CURSOR_LEDGER_ENTRIES_MAX
            or self._bytes >= limits.CURSOR_LEDGER_BYTES_MAX
        )

    async def _create(self) -> LedgerWriter:
        metadata = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": self._managed_ledger.encode(),
            "pulsar/cursor": self._name.encode(),
        }
        ledger_id = await self._env.ids.next()
        return await self._env.ledgers.create(ledger_id, custom_metadata=metadata)

    @property
    def _managed_ledger(self) -> str:
        return self._node.path.removeprefix(f"{MANAGED_LEDGERS}/").rpartition("/")[0]

    async def _append(self, writer: LedgerWriter, entry: bytes) -> None:
        try:
            await append_durably(writer, entry)
        except BaseException:
            # It takes no more entries, or it is unknown which it has: the next write goes to
            # another one, and the node decides which of them counts.
            self._writer = None
            self._entry_in_doubt |= writer.ledger_id == self._ledger_id
            raise
        self._bytes += len(entry)

    async def _publish(self, ledger_id: int, value: bytes) -> None:
        was_in_doubt, self._in_doubt = self._in_doubt, True
        try:
            await self._node.write(value)
        except Fenced:
            # Only now is it certain that no node names it, unless an earlier write did so.
            if ledger_id not in (IN_NODE, self._ledger_id) and not was_in_doubt:
                await discard_ledger(self._env.ledgers, ledger_id)
            raise
        self._in_doubt = self._entry_in_doubt = False
        await self._discard_all_but(ledger_id)

    async def _discard_all_but(self, ledger_id: int) -> None:
        known = {self._ledger_id, self._writer.ledger_id if self._writer else IN_NODE}
        self._ledger_id = ledger_id
        if ledger_id == IN_NODE:
            self._writer = None
        for unused in sorted(known - {ledger_id, IN_NODE}):
            await discard_ledger(self._env.ledgers, unused)
