"""All cursors of one managed ledger: taking them over, creating, deleting, the slowest of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    Corruption,
    EntryLost,
    Fenced,
    NotFound,
)
from anabranch.ids import Position, decode_segment, encode_segment
from anabranch.ledgers.stamps import LedgerPlace
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.cursor import Cursor, CursorHooks
from anabranch.managed_ledger.cursor_properties import check_properties_size, refuse_reserved
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import (
    IN_NODE,
    CursorDocument,
    decode_cursor,
    decode_position_entry,
    encode_cursor,
    restore_acknowledged,
)
from anabranch.managed_ledger.newest_entry import newest_readable
from anabranch.managed_ledger.opening import discard_ledger
from anabranch.managed_ledger.owned_node import OwnedNode
from anabranch.managed_ledger.stored_cursor import StoredCursor
from anabranch.metadata.store import ABSENT, Expected, Node
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")

Initial = Literal["latest", "earliest"] | Position
"""Where a new cursor begins; a position is the first entry it wants."""


class Cursors:
    """The cursors of one managed ledger by name. Not to be used by two calls at once."""

    __slots__ = ("_chain", "_env", "_hooks", "_owner", "_transient", "by_name")

    def __init__(
        self, owner: OwnedNode, chain: Chain, env: Environment, hooks: CursorHooks
    ) -> None:
        self._owner = owner
        self._chain = chain
        self._env = env
        self._hooks = hooks
        self.by_name: dict[str, Cursor] = {}
        self._transient: list[Cursor] = []

    async def load(self) -> None:
        """Take over every stored cursor.

        Each node is written once, so that the previous owner can no longer write it: it would
        otherwise make the first write of this owner fail. A state in a ledger moves to the node
        if it fits there; if not, the ledger has been closed by reading it and is kept until the
        next write.
        """
        prefix = f"{self._owner.path}/"
        found = [node async for node in self._env.metadata.scan(self._owner.path)]
        await self._owner.check()
        for node in found:
            segment = node.stat.path.removeprefix(prefix)
            if node.stat.path.startswith(prefix) and "/" not in segment:
                await self._claim(decode_segment(segment), node)

    async def open(
        self,
        name: str,
        initial: Initial,
        properties: Mapping[str, int],
        cursor_properties: Mapping[str, str],
    ) -> Cursor:
        """Return the cursor of that name, created durably if there is none."""
        if (cursor := self.by_name.get(name)) is not None:
            return cursor
        refuse_reserved(cursor_properties)
        check_properties_size([*properties, *cursor_properties], cursor_properties.values())
        state = self._new_state(initial)
        node = self._owned(self._path(name), ABSENT)
        value = encode_cursor(state, properties, cursor_properties)
        assert value is not None, "a new cursor has nothing but properties"
        try:
            await node.write(value)
        except Fenced:
            # The previous owner created it after our load: what it says is as good as what we
            # would write. Or the next one did, which adopting it finds out.
            return await self._adopt(name)
        # Whoever takes over lists the cursors after publishing the chain: if the chain is still
        # ours now, they see this cursor; if not, they may trim without it.
        await self._owner.check()
        cursor = Cursor(
            name,
            state,
            StoredCursor(name, node, self._env),
            self._hooks,
            properties=properties,
            cursor_properties=cursor_properties,
        )
        self.by_name[name] = cursor
        return cursor

    def transient(self, name: str, *, initial: Initial = "latest") -> Cursor:
        """Return a cursor that is kept in memory only and does not hold back trimming."""
        cursor = Cursor(name, self._new_state(initial), None, self._hooks)
        self._transient.append(cursor)
        return cursor

    def release(self, cursor: Cursor) -> None:
        """Forget a cursor that is kept in memory only; no error if it is forgotten."""
        assert not cursor.is_durable, f"cursor {cursor.name} is stored and can only be deleted"
        if cursor in self._transient:
            self._transient.remove(cursor)

    def forget_trimmed(self) -> None:
        """Drop what the cursors know of ledgers that are no longer in the chain."""
        for cursor in (*self.by_name.values(), *self._transient):
            cursor.forget_trimmed()

    async def delete(self, name: str) -> None:
        """Remove a cursor durably.

        Raises:
            NotFound: if there is none of that name.
        """
        cursor = self.by_name.get(name)
        if cursor is None:
            raise NotFound(f"there is no cursor {name} at {self._owner.path}")
        await cursor.delete()
        del self.by_name[name]

    def slowest(self) -> Position | None:
        """The lowest mark of all cursors, stored or to be stored; None if there is no cursor.

        A mark that moves forward counts once it is durable, one that goes back at once.
        """
        cursors = self.by_name.values()
        return min((min(c.durable_mark_delete, c.mark_delete) for c in cursors), default=None)

    async def flush(self) -> None:
        """Make every acknowledgement made before this call durable."""
        for cursor in list(self.by_name.values()):
            await cursor.flushed()

    async def close(self) -> None:
        """Make everything durable where that is possible, then stop."""
        for cursor in list(self.by_name.values()):
            try:
                await cursor.close()
            except AnabranchError as error:
                _log.warning(
                    "acknowledgements_not_stored",
                    cursor=cursor.name,
                    owner=self._owner.path,
                    error=str(error),
                )

    def _path(self, name: str) -> str:
        return f"{self._owner.path}/{encode_segment(name)}"

    def _owned(self, path: str, expected: Expected) -> OwnedNode:
        return OwnedNode(self._env.metadata, path, expected, self._env.config.cursor_compression)

    def _new_state(self, initial: Initial) -> Acknowledged:
        state = Acknowledged(self._chain, self._chain.last_confirmed)
        if initial == "earliest":
            state.reset(self._chain.first_position())
        elif isinstance(initial, Position):
            state.reset(initial)
        return state

    async def _adopt(self, name: str) -> Cursor:
        node = await self._read_as_owner(self._path(name))
        if node is None or not await self._claim(name, node):
            raise ConflictError(f"cursor {name} at {self._owner.path} is being deleted by another")
        await self._owner.check()
        return self.by_name[name]

    async def _read_as_owner(self, path: str) -> Node | None:
        """Read a cursor's node, which then is nothing that a later owner wrote.

        What that one acknowledged may lie in ledgers that our chain does not have: claiming its
        node would write it back without.

        Raises:
            Fenced: if there is a later owner.
        """
        node = await self._env.metadata.get(path)
        await self._owner.check()
        return node

    async def _claim(self, name: str, node: Node | None) -> bool:
        """Take a cursor over. The node was read before the chain was last seen to be ours."""
        path = self._path(name)
        for _ in range(limits.CURSOR_CLAIM_TRIES_MAX):
            if node is None:
                return False
            path = node.stat.path
            document = decode_cursor(node.value, f"{name} at {path}")
            named = LedgerPlace(document.cursor_ledger_id, document.stamp)
            lost = False
            if named.ledger_id >= 0:
                document, lost = await self._read_cursor_ledger(name, document)
            state = restore_acknowledged(document, self._chain)
            value = encode_cursor(
                state, document.properties, document.cursor_properties, document.extra
            )
            stored = self._env.config.cursor_compression.pack(value) if value else node.value
            try:
                stat = await self._env.metadata.put(path, stored, node.stat.version)
            except BadVersion:
                node = await self._read_as_owner(path)
                continue
            if lost:
                _log.warning(
                    "cursor_ledger_lost",
                    cursor=name,
                    owner=self._owner.path,
                    ledger=named.ledger_id,
                    goes_on_from=str(state.mark_delete),
                )
            if named.ledger_id >= 0 and value is not None:
                await discard_ledger(self._env.ledgers, named)
                named = IN_NODE
            owned = self._owned(path, stat.version)
            self.by_name[name] = Cursor(
                name,
                state,
                StoredCursor(
                    name,
                    owned,
                    self._env,
                    named=named,
                    extra=document.extra,
                    entry_extra=document.entry_extra,
                ),
                self._hooks,
                properties=document.properties,
                cursor_properties=document.cursor_properties,
            )
            return True
        raise ConflictError(f"another owner keeps writing cursor {name} at {path}")

    async def _read_cursor_ledger(
        self, name: str, node: CursorDocument
    ) -> tuple[CursorDocument, bool]:
        """Read the position in the last entry of a cursor's own ledger.

        Returns:
            What it says, or what the node says if that ledger is lost, and whether it is.
        """
        try:
            place = LedgerPlace(node.cursor_ledger_id, node.stamp)
            reader = await self._env.ledgers.open(place)
            found = await newest_readable(reader)
            if found is not None:
                if found.entry_id < reader.last_entry_id:
                    _log.warning(
                        "cursor_ledger_damaged",
                        cursor=name,
                        owner=self._owner.path,
                        ledger=reader.ledger_id,
                        entry=reader.last_entry_id,
                        goes_on_from_entry=found.entry_id,
                    )
                return decode_position_entry(bytes(found.payload), node, name), False
        except (NotFound, Corruption, EntryLost):
            # Or the previous owner has just gone on to another one: writing the node tells.
            pass
        if node.mark_delete is not None:
            return replace(node, ranges=(), batches=()), True
        start = self._chain.previous_position(self._chain.first_position())
        return replace(node, mark_delete=start, ranges=(), batches=()), True
