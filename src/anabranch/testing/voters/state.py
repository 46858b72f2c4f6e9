"""The state that the voters replicate: that of the metadata store, its commands and snapshots."""

from anabranch.consensus.log import BEGINNING, LogPosition, LogRecord
from anabranch.metadata import commands, snapshot
from anabranch.metadata.entries import Entry
from anabranch.metadata.state_machine import StateMachine
from anabranch.metadata.store import Put


def put_command(path: str, value: bytes, wall_ms: int) -> bytes:
    """The bytes of a command that sets one node."""
    return commands.encode(commands.Write(wall_ms, [Put(path, value)]))


def apply(machine: StateMachine, record: LogRecord) -> None:
    """Let a committed record take effect."""
    machine.apply(commands.decode(record.payload), epoch=record.term)


def nodes_of(machine: StateMachine) -> dict[str, Entry]:
    """Every node."""
    nodes: dict[str, Entry] = {}
    view = machine.tree.freeze()
    while page := view.next_page():
        nodes.update(page)
    machine.tree.release(view)
    return nodes


def encode(machine: StateMachine, position: LogPosition) -> bytes:
    """A snapshot, which includes the record at a position."""
    header = snapshot.SnapshotHeader(position, machine.tree.counters, machine.last_session)
    nodes = list(nodes_of(machine).items())
    return b"".join(
        (
            snapshot.encode_header(header),
            snapshot.encode_sessions(machine.sessions),
            snapshot.encode_nodes(nodes),
            snapshot.encode_end(len(nodes)),
        )
    )


def decode(file: str, content: bytes | None) -> tuple[StateMachine, LogPosition]:
    """The state in a snapshot and its position; an empty one if there is no snapshot."""
    if content is None:
        return StateMachine(), BEGINNING
    reader = snapshot.SnapshotReader(file, content)
    machine = StateMachine(reader.header.counters, reader.header.last_session)
    machine.sessions.update(reader.sessions)
    for nodes in reader.blocks():
        for path, entry in nodes:
            machine.tree.load(path, entry)
    return machine, reader.header.position
