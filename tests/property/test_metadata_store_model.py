"""The stores against a plain dictionary, with restarts in between for the one that has them."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from anabranch.errors import AnabranchError, BadVersion, Fenced, InputError, NotEmpty, NotFound
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    EventKind,
    Expected,
    Guard,
    MetadataStore,
    Operation,
    Put,
    Revision,
    SessionEvent,
    Stat,
    Version,
)
from anabranch.runtime.real import real_runtime

NAMES = st.lists(st.sampled_from(["a", "b", "a-b"]), min_size=1, max_size=3)
PATHS = NAMES.map(lambda names: "/" + "/".join(names))
VALUES = st.binary(max_size=5)
SETTINGS = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def _plain_put(path: str, value: bytes, expected: Expected) -> Put:
    return Put(path, value, expected)


@dataclass
class Known:
    """What the model knows of a node."""

    value: bytes
    version: Version
    revision: Revision
    ephemeral: bool = False
    next_sequence: int = 0


class MetadataModel(RuleBasedStateMachine):
    """Drives a store and predicts every answer."""

    versions = Bundle("versions")
    history_is_whole = True
    batches_in_order = True
    """Whether the changes of a batch are made one after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """With a loop that outlives it, or one of its own."""
        super().__init__()
        self.own_loop = loop is None
        self.loop = loop or asyncio.new_event_loop()
        self.nodes: dict[str, Known] = {}
        self.store: Any
        self.seen: Revision
        self.changes = 0
        self.changes_seen = 0

    def wait_for(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def open(self) -> MetadataStore:
        return MemoryStore(real_runtime().clock)

    def validate(self) -> None:
        """Look whether the store contradicts itself."""
        self.store._backing.machine.validate()

    @initialize()
    def start(self) -> None:
        self.store = self.wait_for(self.open())
        self.seen = self.wait_for(self.store.revision())

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.wait_for(self.store.close())
        if self.own_loop:
            self.loop.close()

    # --- the model ----------------------------------------------------------------------------

    def has_children(self, path: str) -> bool:
        return any(other.startswith(f"{path}/") for other in self.nodes)

    def predicted(self, operation: Operation) -> type[AnabranchError] | None:
        node = self.nodes.get(operation.path)
        guard = operation.guard
        if guard is not None and (
            guard.path not in self.nodes or self.nodes[guard.path].version != guard.version
        ):
            return Fenced
        if node is None and isinstance(operation, Delete):
            return NotFound
        expected = operation.expected
        if expected is ABSENT and node is not None:
            return BadVersion
        if isinstance(expected, Version) and (node is None or node.version != expected):
            return BadVersion
        if isinstance(operation, Delete) and self.has_children(operation.path):
            return NotEmpty
        parts = operation.path.split("/")
        above = ["/".join(parts[:depth]) for depth in range(2, len(parts))]
        if any(path in self.nodes and self.nodes[path].ephemeral for path in above):
            return InputError
        return None

    def next_number(self, parent: str, path: str) -> int:
        """The number of a sequential node that was just made."""
        del path
        return self.nodes[parent].next_sequence

    def check(
        self, operation: Operation, outcome: object, *, in_order: bool = True
    ) -> list[Version]:
        """Compare one outcome with the prediction and carry it over into the model."""
        refusal = self.predicted(operation)
        if refusal is not None:
            assert type(outcome) is refusal
            return []
        if isinstance(operation, Delete):
            assert outcome is None
            del self.nodes[operation.path]
            self.changes += 1
            return []
        assert isinstance(outcome, Stat)
        path = operation.path
        parts = path.split("/")[1:]
        for depth in range(1, len(parts)):
            self.imply("/" + "/".join(parts[:depth]))
        if operation.sequential:
            parent = path[: path.rindex("/")]
            number = self.next_number(parent, outcome.path)
            path = f"{path}{number:010}"
            self.nodes[parent].next_sequence = number + 1
        assert outcome.path == path
        before = self.nodes.get(path)
        assert before is None or outcome.version != before.version
        if in_order:
            assert all(known.revision < outcome.revision for known in self.nodes.values())
        ephemeral = operation.ephemeral if before is None else before.ephemeral
        assert (outcome.ephemeral, outcome.created_by_self) == (ephemeral, ephemeral)
        sequence = 0 if before is None else before.next_sequence
        self.nodes[path] = Known(
            operation.value, outcome.version, outcome.revision, ephemeral, sequence
        )
        self.changes += 1
        return [outcome.version]

    def imply(self, path: str) -> None:
        if path not in self.nodes:
            node = self.wait_for(self.store.get(path))
            assert node is not None
            self.nodes[path] = Known(b"", node.stat.version, node.stat.revision)
            self.changes += 1

    # --- what is done -------------------------------------------------------------------------

    @rule(target=versions, path=PATHS, value=VALUES, expected=st.sampled_from([ANY, ABSENT]))
    def put(self, path: str, value: bytes, expected: Expected) -> Any:
        return self.write(Put(path, value, expected))

    @rule(target=versions, path=PATHS, value=VALUES, expected=versions)
    def put_if(self, path: str, value: bytes, expected: Version) -> Any:
        return self.write(Put(path, value, expected))

    @rule(target=versions, path=PATHS, value=VALUES, expected=st.sampled_from([ANY, ABSENT]))
    def put_ephemeral(self, path: str, value: bytes, expected: Expected) -> Any:
        return self.write(Put(path, value, expected, ephemeral=True))

    @rule(target=versions, parent=PATHS, value=VALUES, ephemeral=st.booleans())
    def put_sequential(self, parent: str, value: bytes, ephemeral: bool) -> Any:
        return self.write(Put(f"{parent}/s-", value, ANY, ephemeral, sequential=True))

    @rule(target=versions, path=PATHS, guarding=PATHS, value=VALUES, version=versions)
    def put_guarded(self, path: str, guarding: str, value: bytes, version: Version) -> Any:
        return self.write(Put(path, value, guard=Guard(guarding, version)))

    @rule(path=PATHS, guarding=PATHS, version=versions)
    def delete_guarded(self, path: str, guarding: str, version: Version) -> None:
        self.write(Delete(path, guard=Guard(guarding, version)))

    async def end_session(self) -> None:
        """As if the store had not been heard of for too long."""
        events = self.store.session_events()
        await self.store.end_session(self.store.session)
        async with asyncio.timeout(10):
            assert await anext(events) is SessionEvent.SESSION_LOST
            assert await anext(events) is SessionEvent.SESSION_REESTABLISHED

    @rule()
    def lose_the_session(self) -> None:
        self.wait_for(self.end_session())
        self.session_is_over()

    def session_is_over(self) -> None:
        doomed = [path for path, known in self.nodes.items() if known.ephemeral]
        for path in doomed:
            del self.nodes[path]
            self.changes += 1

    @rule(path=PATHS, expected=st.sampled_from([ANY, ABSENT]))
    def delete(self, path: str, expected: Expected) -> None:
        self.write(Delete(path, expected))

    @rule(path=PATHS, expected=consumes(versions))
    def delete_if(self, path: str, expected: Version) -> None:
        self.write(Delete(path, expected))

    def write(self, operation: Operation) -> Any:
        (outcome,) = self.wait_for(asyncio.wait_for(_gathered(self.store, operation), timeout=10))
        return multiple(*self.check(operation, outcome))

    @rule(
        operations=st.lists(
            st.one_of(
                st.builds(_plain_put, PATHS, VALUES, st.sampled_from([ANY, ABSENT])),
                PATHS.map(Delete),
            ),
            max_size=6,
            # The model looks implied parents up afterwards, so no path may matter twice.
            unique_by=lambda operation: operation.path.split("/")[1],
        )
    )
    def batch(self, operations: list[Operation]) -> None:
        outcomes = self.wait_for(self.store.batch(operations))
        for operation, outcome in zip(operations, outcomes, strict=True):
            self.check(operation, outcome, in_order=self.batches_in_order)

    # --- what is seen -------------------------------------------------------------------------

    @rule(prefix=PATHS)
    def scan(self, prefix: str) -> None:
        async def paths() -> list[tuple[str, bytes]]:
            return [(node.stat.path, node.value) async for node in self.store.scan(prefix)]

        below = [path for path in self.nodes if path == prefix or path.startswith(f"{prefix}/")]
        below.sort(key=lambda path: path.split("/"))
        assert self.wait_for(paths()) == [(path, self.nodes[path].value) for path in below]

    @rule(path=PATHS)
    def children(self, path: str) -> None:
        names = {
            other[len(path) + 1 :].split("/")[0]
            for other in self.nodes
            if other.startswith(f"{path}/")
        }
        assert self.wait_for(self.store.children(path)) == sorted(names)

    @precondition(lambda self: self.history_is_whole and self.changes > self.changes_seen)
    @rule()
    def resume_the_watch(self) -> None:
        """Every change since the last look is told once; the log is short, so there is no gap."""

        async def told() -> None:
            watch = self.store.watch("/", since=self.seen)
            while self.changes_seen < self.changes:
                event = await asyncio.wait_for(anext(watch), 10)
                assert event.kind is not EventKind.GAP
                assert event.revision > self.seen
                self.seen = event.revision
                self.changes_seen += 1

        self.wait_for(told())
        assert self.seen == self.wait_for(self.store.revision())

    @invariant()
    def nodes_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        for path, known in self.nodes.items():
            node = self.wait_for(self.store.get(path))
            assert (node.value, node.stat.version, node.stat.revision) == (
                known.value,
                known.version,
                known.revision,
            )
        self.validate()


async def _gathered(store: MetadataStore, operation: Operation) -> list[Any]:
    """A single call's result or error, so that both can be compared with a prediction."""
    if isinstance(operation, Put):
        call: Any = store.put(
            operation.path,
            operation.value,
            operation.expected,
            ephemeral=operation.ephemeral,
            sequential=operation.sequential,
            guard=operation.guard,
        )
    else:
        call = store.delete(operation.path, operation.expected, guard=operation.guard)
    return list(await asyncio.gather(call, return_exceptions=True))


class EmbeddedModel(MetadataModel):
    """The same, with restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()

    async def open(self) -> LocalHandle:
        return await EmbeddedStore.open(real_runtime(), f"{self.folder}/store")

    @rule()
    def restart(self) -> None:
        self.wait_for(self.store.close())
        self.session_is_over()
        self.store = self.wait_for(self.open())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class EmbeddedSnapshotModel(EmbeddedModel):
    """The same, with snapshots all the time: what they cut off, a watch cannot be told."""

    history_is_whole = False

    async def open(self) -> LocalHandle:
        return await EmbeddedStore.open(
            real_runtime(), f"{self.folder}/store", snapshot_after_bytes=1
        )


def as_test(machine: type[MetadataModel]) -> Any:
    case = machine.TestCase
    case.settings = SETTINGS
    return case


TestMemoryModel = as_test(MetadataModel)
TestEmbeddedModel = as_test(EmbeddedModel)
TestEmbeddedSnapshotModel = as_test(EmbeddedSnapshotModel)
