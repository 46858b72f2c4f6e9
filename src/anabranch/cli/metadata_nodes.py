"""`anabranch metadata get|put|delete|ls|tree|stat`: single nodes of any metadata store."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.metadata_copy_reports import CopyProgress
from anabranch.cli.metadata_places import (
    CredentialsOption,
    DryRunOption,
    OutputOption,
    UrlOption,
    counted,
    expected_from,
    opened,
    print_fields,
    print_json,
    print_json_line,
    run,
    safe,
    stat_json,
    value_json,
    value_text,
    warn,
)
from anabranch.cli.progress import Progress
from anabranch.cli.verdicts import Output
from anabranch.errors import BadVersion, ConfigError, InputError, NotEmpty, NotFound

if TYPE_CHECKING:
    from anabranch.metadata.store import IndexKey, MetadataStore, Node, Stat
    from anabranch.runtime import Clock, Runtime

PathArgument = Annotated[str, typer.Argument(help="The node, such as /admin/policies.")]
SubtreeArgument = Annotated[str, typer.Argument(help="Where to begin.")]
ExpectedOption = Annotated[
    str | None,
    typer.Option(
        help="Only if the node has this version, as printed by stat, or is 'absent'.",
        show_default=False,
    ),
]


def get(
    path: PathArgument,
    url: UrlOption,
    raw: Annotated[
        bool, typer.Option("--raw", help="The bytes exactly, and nothing else.")
    ] = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the value of a node.

    Exit code 0: there it is; 1: there is none; 2: it cannot be done.
    """

    async def work(runtime: "Runtime") -> "Node":
        async with opened(url, runtime, credentials) as store:
            return await _node(store, path)

    node = run(work)
    if raw:
        sys.stdout.buffer.write(node.value)
        sys.stdout.buffer.flush()
    elif output is Output.JSON:
        print_json(stat_json(node.stat) | {"bytes": len(node.value)} | value_json(node.value))
    else:
        print(value_text(node.value))


async def _node(store: "MetadataStore", path: str) -> "Node":
    node = await store.get(path)
    if node is None:
        raise NotFound(f"no node at {path}")
    return node


def put(
    path: PathArgument,
    url: UrlOption,
    value: Annotated[
        str | None, typer.Option(help="The value as text.", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="File with the value; - is standard input.")
    ] = None,
    expected_version: ExpectedOption = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Add the next number to the name.")
    ] = False,
    index: Annotated[
        list[str] | None,
        typer.Option(help="NAME=KEY of a secondary index, instead of those the node has."),
    ] = None,
    dry_run: DryRunOption = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Write a value; missing parents are made.

    Exit code 0: written; 1: the version is another; 2: it cannot be done; 3: the answer was lost.
    """
    from anabranch.metadata.operation_checks import check_operation
    from anabranch.metadata.store import Put

    async def work(runtime: "Runtime") -> "Stat | None":
        keys = _index_keys(index)
        content = _content(value, file)
        check_operation(Put(path, content, sequential=sequential, indexes=keys or ()))
        async with opened(url, runtime, credentials, only_look=dry_run) as store:
            expected = await expected_from(store, path, expected_version)
            if keys is None:
                keys = () if sequential else await _present_indexes(store, path)
            operation = Put(path, content, expected, False, sequential, keys)
            check_operation(operation)
            if dry_run:
                await _check_put(store, operation)
                return None
            async with counted(store, path):
                return await store.put(path, content, expected, sequential=sequential, indexes=keys)

    stat = run(work)
    if stat is None and output is Output.JSON:
        print_json({"path": path, "dry_run": True})
    elif stat is None:
        print(f"would write {safe(path)}")
    elif output is Output.JSON:
        print_json(stat_json(stat))
    else:
        print(f"{safe(stat.path)} has version {stat_json(stat)['version']}")


def _content(value: str | None, file: str | None) -> bytes:
    from anabranch import limits

    if (value is None) == (file is None):
        raise ConfigError("give the value by either --value or --file (- is standard input)")
    if value is not None:
        return value.encode(errors="surrogateescape")
    most = limits.METADATA_VALUE_BYTES_MAX
    try:
        if file == "-":
            content = sys.stdin.buffer.read(most + 1)
        else:
            with Path(str(file)).open("rb") as source:
                content = source.read(most + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from error
    if len(content) > most:
        # Nobody knows how long it is: no more was read.
        raise ConfigError(f"{file} is too large for a value: at most {most} bytes are allowed")
    return content


def _index_keys(given: list[str] | None) -> "tuple[IndexKey, ...] | None":
    from anabranch.metadata.store import IndexKey

    if not given:
        return None
    keys = []
    for text in given:
        name, equals, key = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--index {text!r} is not NAME=KEY")
        keys.append(IndexKey(name, key))
    return tuple(keys)


async def _present_indexes(store: "MetadataStore", path: str) -> "tuple[IndexKey, ...]":
    """What a put would take away otherwise."""
    record = await store.record(path)
    return () if record is None else record.indexes


async def _check_put(store: "MetadataStore", put: Any) -> None:
    from anabranch.metadata.store import ABSENT, Version

    if put.sequential:
        return
    node = await store.get(put.path)
    if put.expected is ABSENT and node is not None:
        raise BadVersion(put.path, "the node exists already")
    if isinstance(put.expected, Version) and (node is None or node.stat.version != put.expected):
        raise BadVersion(put.path, f"expected {put.expected}")


def delete(
    path: PathArgument,
    url: UrlOption,
    expected_version: ExpectedOption = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="With everything below it, children first.")
    ] = False,
    dry_run: DryRunOption = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove a node.

    Exit code 0: removed; 1: there is none, it has children, or its version is another;
    2: it cannot be done; 3: the answer was lost.
    """

    async def work(runtime: "Runtime") -> int:
        async with opened(url, runtime, credentials) as store:
            expected = await expected_from(store, path, expected_version)
            if path == "/":
                raise InputError("the root '/' cannot be deleted")
            node = await _node(store, path)
            if not recursive and await store.children(path):
                raise NotEmpty(f"{path} has children: --recursive deletes them, too")
            if expected_version is not None and expected != node.stat.version:
                raise BadVersion(path, f"expected {expected_version}, found {node.stat.version}")
            if dry_run:
                return await _count(store, path)
            async with counted(store, path):
                below = await _delete_below(store, path) if recursive else 0
                await store.delete(path, expected)
                return below + 1

    count = run(work)
    if output is Output.JSON:
        print_json({"path": path, "deleted": 0 if dry_run else count, "dry_run": dry_run})
    else:
        print(f"{'would delete' if dry_run else 'deleted'} {count} nodes")


async def _count(store: "MetadataStore", path: str) -> int:
    count = 0
    async for _ in store.scan(path):
        count += 1
    return count


async def _delete_below(store: "MetadataStore", path: str) -> int:
    """Delete what is below a node, level by level from the bottom, without a list of all of it."""
    from anabranch.metadata.paths import join

    progress = Progress(sys.stderr)
    deleted = 0
    try:
        open_levels = [(path, await store.children(path))]
        while open_levels:
            place, names = open_levels[-1]
            if not names:
                open_levels.pop()
                if open_levels:
                    await store.delete(place)
                    deleted += 1
                    progress.show(f"deleted {deleted:,} nodes")
                continue
            child = join(place, names.pop())
            open_levels.append((child, await store.children(child)))
    finally:
        progress.end()
    return deleted


def list_children(
    url: UrlOption,
    path: SubtreeArgument = "/",
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the names of a node's children.

    Exit code 0: there they are; 1: there is no such node; 2: it cannot be done.
    """

    async def work(runtime: "Runtime") -> list[str]:
        async with opened(url, runtime, credentials) as store:
            names = await store.children(path)
            if not names:
                await _node(store, path)
            return names

    names = run(work)
    if output is Output.JSON:
        print_json(names)
    else:
        for name in names:
            print(safe(name))


def tree(
    url: UrlOption,
    path: SubtreeArgument = "/",
    depth: Annotated[
        int | None, typer.Option(help="Levels below it to show.", min=0, show_default=False)
    ] = None,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Print a node and everything below it: names, sizes, versions; JSON is one line per node.

    Exit code 0: there it is; 1: there is no such node; 2: it cannot be done.
    """

    async def work(runtime: "Runtime") -> None:
        async with opened(url, runtime, credentials) as store:
            await _node(store, path)
            first = path.rstrip("/").count("/")
            async for node in store.scan(path):
                level = node.stat.path.rstrip("/").count("/") - first
                if depth is None or level <= depth:
                    _print_node(node, level, output)

    run(work)


def _print_node(node: "Node", level: int, output: Output) -> None:
    if output is Output.JSON:
        print_json_line(stat_json(node.stat) | {"bytes": len(node.value)})
        return
    name = node.stat.path if level == 0 else node.stat.path.rpartition("/")[2]
    details = f"{len(node.value)} bytes, version {node.stat.version.native}"
    if node.stat.ephemeral:
        details += ", ephemeral"
    print(f"{'  ' * level}{safe(name)}  ({details})")


def stat(
    url: UrlOption,
    path: SubtreeArgument = "/",
    below: Annotated[
        bool, typer.Option("--below", help="Also count everything below, with its digests.")
    ] = False,
    credentials: CredentialsOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Print what is known of a node besides its value; with --below of its whole subtree.

    Exit code 0: there it is; 1: there is no such node; 2: it cannot be done.
    """
    from anabranch.metadata.transfer.open_copies import sentences_of
    from anabranch.metadata.transfer.rights_last import HoldsRights

    async def work(runtime: "Runtime") -> tuple[dict[str, Any], list[str]]:
        async with opened(url, runtime, credentials) as store:
            node = await _node(store, path)
            found = stat_json(node.stat) | {
                "bytes": len(node.value),
                "children": len(await store.children(path)),
            }
            found |= await _totals(store, path, runtime.clock) if below else {}
            notes = store.open_notes if isinstance(store, HoldsRights) else None
            return found, [] if notes is None else await sentences_of(notes)

    fields, open_copies = run(work)
    if output is Output.JSON:
        print_json(fields | {"open_copies": open_copies})
    else:
        print_fields(fields)
    for sentence in open_copies:
        warn(safe(sentence))


async def _totals(store: "MetadataStore", path: str, clock: "Clock") -> dict[str, Any]:
    from anabranch.metadata.transfer.file_format import Totalling
    from anabranch.metadata.transfer.survey import paced

    totalling = Totalling()
    largest = ("", -1)
    progress = CopyProgress()
    try:
        async for record in paced(store.export(path), clock, None, None, progress.tell, "count"):
            totalling.add(record)
            if len(record.value) > largest[1]:
                largest = (record.path, len(record.value))
    finally:
        progress.end()
    totals = totalling.totals
    return {
        "nodes": totals.digest.nodes,
        "ephemeral_nodes": totals.ephemerals,
        "value_bytes": totals.digest.value_bytes,
        "largest": largest[0],
        "largest_bytes": largest[1],
        "content_digest": totals.digest.content_text,
        "exact_digest": totals.digest.exact_text,
    }
