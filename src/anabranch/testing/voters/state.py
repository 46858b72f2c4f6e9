"""The state that the voters replicate: the metadata tree, its commands and its snapshots."""

from anabranch.consensus.log import BEGINNING, LogPosition, LogRecord
from anabranch.metadata import commands, snapshot
from anabranch.metadata.entries import Entry
from anabranch.metadata.store import Put
from anabranch.metadata.tree import Tree


def put_command(path: str, value: bytes, wall_ms: int) -> bytes:
    """The bytes of a command that sets one node."""
    return commands.encode(commands.Write(wall_ms, [Put(path, value)]))


def apply(tree: Tree, record: LogRecord) -> None:
    """Let a committed record take effect."""
    command = commands.decode(record.payload)
    assert isinstance(command, commands.Write), "the voters are asked for nothing else"
    tree.apply(command.operations, epoch=record.term, wall_ms=command.wall_ms)


def nodes_of(tree: Tree) -> dict[str, Entry]:
    """Everything a tree holds."""
    nodes: dict[str, Entry] = {}
    view = tree.freeze()
    while page := view.next_page():
        nodes.update(page)
    tree.release(view)
    return nodes


def encode(tree: Tree, position: LogPosition) -> bytes:
    """A snapshot of a tree, which includes the record at a position."""
    content = snapshot.encode_header(snapshot.SnapshotHeader(position, tree.counters))
    nodes = list(nodes_of(tree).items())
    content += snapshot.encode_sessions({})
    return content + snapshot.encode_nodes(nodes) + snapshot.encode_end(len(nodes))


def decode(file: str, content: bytes | None) -> tuple[Tree, LogPosition]:
    """The tree of a snapshot and its position; an empty one if there is no snapshot."""
    if content is None:
        return Tree(), BEGINNING
    reader = snapshot.SnapshotReader(file, content)
    tree = Tree(reader.header.counters)
    for nodes in reader.blocks():
        for path, entry in nodes:
            tree.load(path, entry)
    return tree, reader.header.position
