"""Whatever is done to them, the real and the simulated disk show the same."""

import asyncio
import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.runtime import Disk, Runtime
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.simulation import World

PATHS = st.sampled_from(["a", "b", "f/a", "f/b", "f/g/a", "f", "f/g", "a/below"])
CONTENTS = st.binary(max_size=40)
STEPS = st.one_of(
    st.tuples(st.just("append"), PATHS, st.lists(CONTENTS, max_size=3)),
    st.tuples(st.just("replace"), PATHS, CONTENTS),
    st.tuples(st.just("truncate"), PATHS, st.integers(0, 60)),
    st.tuples(st.just("read_at"), PATHS, st.tuples(st.integers(0, 60), st.integers(0, 60))),
    st.tuples(
        st.sampled_from(
            ["create", "read", "list", "make_folder", "remove", "exists", "sync_folder"]
        ),
        PATHS,
        st.none(),
    ),
)


async def act(disk: Disk, root: str, name: str, path: str, argument: Any) -> Any:
    """Do one step; an error is a result like any other."""
    full = f"{root}/{path}"
    try:
        if name in ("append", "truncate", "read_at", "create"):
            return await act_on_file(disk, full, name, argument)
        if name == "replace":
            return await disk.replace(full, argument)
        return await getattr(disk, name)(full)
    except OSError as error:
        return type(error)


async def act_on_file(disk: Disk, full: str, name: str, argument: Any) -> Any:
    file = await disk.open(full, create=name == "create")
    try:
        if name == "append":
            errors: list[OSError | None] = []
            for content in argument:
                file.append([content, b"|"], sync=bool(content), done=errors.append)
            await file.truncate(await settled_size(file, errors, len(argument)))
            return errors
        if name == "truncate":
            await file.truncate(argument)
        if name == "read_at":
            return await file.read_at(*argument)
        return await file.size()
    finally:
        await file.close()


async def settled_size(file: Any, errors: list[OSError | None], count: int) -> int:
    finished = asyncio.Event()
    file.append([b"."], sync=False, done=lambda _: finished.set())
    await finished.wait()
    assert len(errors) == count
    return int(await file.size())


async def play(disk: Disk, root: str, steps: list[tuple[str, str, Any]]) -> list[Any]:
    return [await act(disk, root, *step) for step in steps]


def on_real_disk(steps: list[tuple[str, str, Any]]) -> list[Any]:
    async def main() -> list[Any]:
        disk = RealDisk()
        try:
            with tempfile.TemporaryDirectory() as folder:
                return await play(disk, folder, steps)
        finally:
            disk.close()

    return asyncio.run(main())


def on_simulated_disk(steps: list[tuple[str, str, Any]]) -> list[Any]:
    async def inside(runtime: Runtime) -> list[Any]:
        await runtime.disk.make_folder("/root")
        return await play(runtime.disk, "/root", steps)

    async def main(world: World) -> Any:
        return await world.process("machine").run(inside)

    result: list[Any] = World(1).run(main)
    return result


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_both_disks_agree_on_every_sequence(steps: list[tuple[str, str, Any]]) -> None:
    assert on_simulated_disk(steps) == on_real_disk(steps)
