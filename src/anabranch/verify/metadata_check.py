"""Checks a folder of metadata histories, and runs a load from start to verdict."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from anabranch.errors import Corruption, FormatError, InputError, NotFound
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.verify.limits import HISTORY_LINE_BYTES_MAX
from anabranch.verify.metadata_facts import MetadataFacts
from anabranch.verify.metadata_records import SUFFIX, Held, MetadataRecord, decode, parse_header
from anabranch.verify.metadata_rules import MetadataVerdict
from anabranch.verify.metadata_run import (
    MetadataClient,
    MetadataHistory,
    MetadataLoad,
    MetadataWorkload,
    revision_tuple,
    value_text,
    version_tuple,
)
from anabranch.verify.records import Outcome
from anabranch.verify.workload import refuse_used

_STEP_S: Final = 0.2
_NOW: Final = "/"
"""In place of a client: the store is asked now. No file has this name."""
_OWN_PROCESS: Final = ("memory", "embedded")
OnProgress = Callable[[str, dict[Outcome, int]], None]


async def check_metadata(folder: Path, *, store: MetadataStore | None = None) -> MetadataVerdict:
    """Judge the histories of one run; with a store, against what it holds now.

    Raises:
        NotFound: if there is no such folder.
        InputError: if it holds no histories, or those of several runs.
        FormatError: if a file is of another format or version, or contradicts itself.
        Corruption: if a line is damaged, with its place.
    """
    with closing(MetadataFacts()) as facts:
        prefix = _load(folder, facts)
        if store is not None:
            await store.sync()
            async for node in store.scan(prefix):
                stat = node.stat
                version, revision = version_tuple(stat.version), revision_tuple(stat.revision)
                facts.hold(_NOW, Held(stat.path, value_text(node.value), version, revision))
            facts.held_by(_NOW)
        facts.arrange()
        return MetadataVerdict(facts)


def _load(folder: Path, facts: MetadataFacts) -> str:
    """Read every history; return the node below which they were made."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise InputError(f"{folder} holds no metadata histories (files named *{SUFFIX})")
    runs: dict[str, str] = {}
    for path in paths:
        records = _records(path, runs)
        try:
            facts.take_client(path.name.removesuffix(SUFFIX), records)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None
    if len(runs) > 1:
        raise InputError(f"{folder} mixes histories of several runs: {', '.join(sorted(runs))}")
    return next(iter(runs.values()), "/")


def _records(path: Path, runs: dict[str, str]) -> Iterator[MetadataRecord]:
    """Read one file; only a torn last line is forgiven."""
    offset, last = 0, float("-inf")
    with path.open("rb") as file:
        while (line := file.readline(HISTORY_LINE_BYTES_MAX)).endswith(b"\n"):
            if not offset:
                header = parse_header(line, str(path))
                runs[header["run"]] = header["prefix"]
            else:
                try:
                    record = decode(line)
                except FormatError as error:
                    raise Corruption(str(path), offset, str(error)) from None
                if record.t < last:
                    raise Corruption(str(path), offset, f"time goes back from {last}")
                last = record.t
                yield record
            offset += len(line)
        if len(line) == HISTORY_LINE_BYTES_MAX:
            raise Corruption(str(path), offset, f"line longer than {HISTORY_LINE_BYTES_MAX} bytes")


async def run_metadata(
    url: str,
    runtime: Runtime,
    load: MetadataLoad,
    folder: Path,
    *,
    run: str,
    clients: int,
    duration_s: float,
    stop: asyncio.Event,
    on_progress: OnProgress,
) -> MetadataVerdict:
    """Put a load on the store that a URL names, and judge it.

    Raises:
        ConfigError: if the settings cannot be run, or there is no such store.
        InputError: if the folder is not empty.
        AnabranchError: if the store does not answer.
    """
    load.check()
    refuse_used(folder)
    own_process = url.partition(":")[0] in _OWN_PROCESS
    handles = [await open_store(url, runtime) for _ in range(1 if own_process else clients)]
    histories = _open_histories(folder, run, load.prefix, clients, runtime.clock.monotonic_s)
    workload = MetadataWorkload(
        [
            MetadataClient(f"client-{n}", handles[n % len(handles)], histories[n], load)
            for n in range(clients)
        ],
        load,
        runtime.entropy,
    )
    try:
        await workload.start()
        end = runtime.clock.monotonic_s() + duration_s
        while runtime.clock.monotonic_s() < end and not stop.is_set():
            workload.raise_failure()
            on_progress("working", workload.counts)
            await asyncio.sleep(_STEP_S)
        on_progress("finishing", workload.counts)
        await workload.finish()
        on_progress("judging", workload.counts)
    finally:
        await workload.close()
        for history in histories:
            history.close()
        for handle in handles:
            await handle.close()
    return await check_metadata(folder)


def _open_histories(
    folder: Path, run: str, prefix: str, clients: int, clock: Callable[[], float]
) -> list[MetadataHistory]:
    folder.mkdir(parents=True, exist_ok=True)
    return [
        MetadataHistory(folder, f"client-{n}", run=run, prefix=prefix, clock=clock)
        for n in range(clients)
    ]
