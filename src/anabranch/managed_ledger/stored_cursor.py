"""Where the state of one cursor is stored: in its node, or in a ledger of its own.

To a ledger goes what is too large for a node, and what has parts of batches: Pulsar looks for those
nowhere else. The node is what counts: it holds the state itself or names the ledger whose last
entry does. A cursor ledger is named only once it holds an entry, and deleted only once the node
names something else, so a crash leaves at most a ledger that nobody names. As in Pulsar, a state
that went to a ledger stays there until that ledger is full or the cursor is closed.
"""

from collections.abc import Mapping

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    CatalogChanged,
    ConflictError,
    CursorTooLarge,
    Fenced,
    InputError,
    OutcomeUnknown,
    StoreFailed,
)
from anabranch.ids import Position
from anabranch.ledgers.clusters import CreatedLedger
from anabranch.ledgers.stamps import LedgerPlace
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.durable_append import append_durably
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import (
    IN_NODE,
    encode_cursor,
    encode_cursor_pointer,
    encode_position_entry,
)
from anabranch.managed_ledger.opening import discard_ledger, start_over
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS, OwnedNode
from anabranch.metadata.store import Guard
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")


class StoredCursor:
    """The stored side of one cursor. One call at a time."""

    __slots__ = (
        "_bytes",
        "_created",
        "_entry_extra",
        "_entry_in_doubt",
        "_env",
        "_extra",
        "_in_doubt",
        "_name",
        "_named",
        "_named_properties",
        "_node",
    )

    def __init__(
        self,
        name: str,
        node: OwnedNode,
        env: Environment,
        *,
        named: LedgerPlace = IN_NODE,
        extra: bytes = b"",
        entry_extra: bytes = b"",
    ) -> None:
        """What others keep in the node and in the last entry of its ledger is written on."""
        self._name = name
        self._node = node
        self._env = env
        self._extra = extra
        self._entry_extra = entry_extra
        self._named = named
        """The ledger that the node names; a previous owner's until the first write."""
        self._created: CreatedLedger | None = None
        """The ledger being written, which the node names or is to name next."""
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
        if self._named == IN_NODE or full:
            value = encode_cursor(state, properties, cursor_properties, self._extra)
            if value is not None:
                await self._publish(IN_NODE, value)
                return
        entry = encode_position_entry(state, properties, self._name, self._entry_extra)
        mark_delete = state.mark_delete
        if self._created is None or full:
            await self._create()
        taken = False
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            try:
                created = await self._append(entry, mark_delete)
            except Fenced:
                # So do those who only repair ledgers; whether there is another owner the node says.
                if taken:
                    raise
                taken = True
                await self._create()
                continue
            if created.place == self._named and cursor_properties == self._named_properties:
                return
            # Should the node not be written, a new owner reads the entry all the same.
            self._entry_in_doubt |= created.place == self._named
            pointer = encode_cursor_pointer(
                created.place, mark_delete, properties, cursor_properties, self._extra
            )
            guard = None if created.place == self._named else created.guard
            may_be_named = self._in_doubt
            try:
                await self._publish(created.place, pointer, guard)
            except CatalogChanged:
                await self._begin_anew(created, may_be_named=may_be_named)
                continue
            self._named_properties = cursor_properties
            return
        raise ConflictError(
            f"the catalog of storage clusters changed {limits.CONDITIONAL_WRITE_TRIES_MAX} times "
            f"while cursor {self._name} began a ledger"
        )

    async def settle(
        self,
        state: Acknowledged,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
    ) -> None:
        """Leave a state that is durable in its node, if it fits there: it is read at once."""
        if self._named == IN_NODE and not state.has_batches:
            return
        value = encode_cursor(state, properties, cursor_properties, self._extra)
        if value is not None:
            await self._publish(IN_NODE, value)
            return
        if self._named == IN_NODE:
            # Pulsar left parts of batches in the node, where it would not find them again.
            await self.write(state, properties, cursor_properties)

    async def leave(self) -> None:
        """Write no more: let go of the ledger that was being written, whoever has the cursor now.

        What it holds stays: it is closed behind the last entry that is durable, or somebody else
        has opened it, or whoever opens it next recovers it.
        """
        created, self._created = self._created, None
        if created is None:
            return
        try:
            await created.writer.close()
        except AnabranchError as error:
            _log.info("cursor_ledger_left_unclosed", cursor=self._name, error=str(error))

    async def delete(self) -> None:
        """Remove the cursor.

        Raises:
            Fenced: if another owner has it.
        """
        await self._node.delete()
        await self._discard_all_but(IN_NODE)

    def _is_full(self) -> bool:
        return self._created is not None and (
            self._created.writer.last_entry_id + 1 >= limits.CURSOR_LEDGER_ENTRIES_MAX
            or self._bytes >= limits.CURSOR_LEDGER_BYTES_MAX
        )

    async def _create(self) -> None:
        metadata = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": self._managed_ledger.encode(),
            "pulsar/cursor": self._name.encode(),
        }
        self._created = await self._env.ledgers.create(f"cursor {self._name}", metadata)
        self._bytes = 0

    async def _begin_anew(self, refused: CreatedLedger, *, may_be_named: bool) -> None:
        """Go on in the cluster that is active now, not in a ledger that was refused."""
        self._created = None
        if may_be_named:
            await self._env.ledgers.refresh()
        else:
            await start_over(self._env.ledgers, refused)
        await self._create()

    @property
    def _managed_ledger(self) -> str:
        return self._node.path.removeprefix(f"{MANAGED_LEDGERS}/").rpartition("/")[0]

    async def _append(self, entry: bytes, mark_delete: Position) -> CreatedLedger:
        created = self._created
        assert created is not None, "a ledger is created before it is appended to"
        try:
            await append_durably(created.writer, entry)
        except InputError as error:
            # Nothing was appended. A ledger that the node names can go on.
            if created.place != self._named and not self._in_doubt:
                self._created = None
                await discard_ledger(self._env.ledgers, created.place)
            raise CursorTooLarge(
                f"the acknowledgements of cursor {self._name} above {mark_delete}: {error}; "
                "nothing more is durable until older messages are acknowledged"
            ) from error
        except BaseException as error:
            # It takes no more entries, or it is unknown which it has: the next write goes to
            # another one, and the node decides which of them counts.
            self._created = None
            self._entry_in_doubt |= created.place == self._named
            unnamed = created.place != self._named and not self._in_doubt
            if unnamed and isinstance(error, AnabranchError):
                await discard_ledger(self._env.ledgers, created.place)
            raise
        self._bytes += len(entry)
        return created

    async def _publish(self, place: LedgerPlace, value: bytes, guard: Guard | None = None) -> None:
        was_in_doubt, self._in_doubt = self._in_doubt, True
        try:
            await self._node.write(value, guard)
        except CatalogChanged:
            self._in_doubt = was_in_doubt
            raise
        except Fenced:
            # Only now is it certain that no node names it, unless an earlier write did so.
            if place not in (IN_NODE, self._named) and not was_in_doubt:
                await discard_ledger(self._env.ledgers, place)
            raise
        self._in_doubt = self._entry_in_doubt = False
        await self._discard_all_but(place)

    async def _discard_all_but(self, place: LedgerPlace) -> None:
        known = {self._named, self._created.place if self._created else IN_NODE}
        self._named = place
        if place == IN_NODE:
            self._created = None
        for unused in sorted(known - {place, IN_NODE}):
            await discard_ledger(self._env.ledgers, unused)
