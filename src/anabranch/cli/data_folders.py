"""A data folder of a stopped server, as commands look into it: of a known format, and held.

Its metadata are looked at in a copy, since opening them writes to them.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Final

from anabranch.cli.metadata_places import opened
from anabranch.errors import Corruption, FormatError

if TYPE_CHECKING:
    from anabranch.metadata.store import MetadataStore
    from anabranch.runtime import Runtime

IDENTITY: Final = "anabranch.json"


def is_data_folder(folder: Path) -> bool:
    """Whether a server keeps its data here."""
    return (folder / IDENTITY).exists()


@contextmanager
def held(data: Path, runtime: "Runtime", *, to_change: bool = False) -> Iterator[None]:
    """Keep servers out of a data folder.

    Raises:
        FolderInUse: if one uses it.
        FormatError: if it is of a version that this build does not know.
    """
    from anabranch.server.data_folder import read_identity

    with locked(data, runtime, to_change=to_change):
        if is_data_folder(data):
            read_identity(str(data / IDENTITY), (data / IDENTITY).read_bytes())
        yield


@contextmanager
def locked(folder: Path, runtime: "Runtime", *, to_change: bool = False) -> Iterator[None]:
    """Hold the lock that a server would; only to change something it is made, if it is missing."""
    # Servers make the lock file; where there is none there was none to hold it.
    if not to_change and not (folder / "lock").exists():
        yield
        return
    lock = runtime.disk.lock_folder(str(folder))
    try:
        yield
    finally:
        lock.release()


@asynccontextmanager
async def opened_copy(folder: Path, runtime: "Runtime") -> "AsyncIterator[MetadataStore]":
    """A copy of embedded metadata.

    Raises:
        Corruption: naming the file that is damaged, not its copy; so does every other error.
        FormatError: if they are of a version that this build does not know.
    """
    with tempfile.TemporaryDirectory() as place:
        copy = await asyncio.to_thread(copytree, folder, Path(place) / "metadata")
        try:
            async with opened(f"embedded:{copy}", runtime, "") as metadata:
                yield metadata
        except Corruption as error:
            file, detail = (
                text.replace(str(copy), str(folder)) for text in (error.file, error.detail)
            )
            raise Corruption(file, error.offset, detail) from error
        except FormatError as error:
            raise FormatError(str(error).replace(str(copy), str(folder))) from error
