"""The data folder: whose it is, which format it has, and that one process uses it.

A folder of ours carries `anabranch.json`. A folder with anything in it but without that file is
somebody else's and is left as it is.

    {"magic": "anabranch data folder", "version": 1, "cluster_id": "…", "created_ms": …}
"""

import json
from dataclasses import dataclass
from typing import Final

from anabranch.errors import ConfigError, FormatError
from anabranch.runtime import Runtime
from anabranch.runtime.disk import FolderLock

IDENTITY_FILE: Final = "anabranch.json"
_LOCK_FILE: Final = "lock"
_MAGIC: Final = "anabranch data folder"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that this process holds."""

    path: str
    cluster_id: str
    lock: FolderLock


async def claim(runtime: Runtime, path: str, *, cluster_id: str | None = None) -> DataFolder:
    """Take a folder for this process; create it if it is missing or empty.

    With `cluster_id`, the folder is a further one of that cluster.

    Raises:
        ConfigError: if the path cannot be used as a folder.
        FormatError: if the folder is not ours, or is of a version this build does not know.
        FolderInUse: if another process holds it.
    """
    try:
        _refuse_foreign(path, await runtime.disk.list(path))
        await runtime.disk.make_folder(path)
        lock = runtime.disk.lock_folder(path)
        try:
            found = await _identify(runtime, path, cluster_id)
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise ConfigError(
            f"data folder {path} cannot be used: {error.strerror or error}"
        ) from error
    return DataFolder(path, found, lock)


async def _identify(runtime: Runtime, path: str, cluster_id: str | None) -> str:
    """Return whose folder this is; a new one becomes ours. Called under the lock only."""
    names = await runtime.disk.list(path)
    _refuse_foreign(path, names)
    file = f"{path}/{IDENTITY_FILE}"
    if IDENTITY_FILE not in names:
        found = cluster_id or runtime.entropy.token_hex(16)
        await runtime.disk.replace(file, _document(found, runtime.clock.wall_ms()))
        return found
    found = read_identity(file, await runtime.disk.read(file))
    if cluster_id is not None and found != cluster_id:
        raise FormatError(
            f"{path} belongs to cluster {found}, and not to {cluster_id} as the data folder: "
            "give the folder that was used with it before"
        )
    return found


def _refuse_foreign(path: str, names: list[str]) -> None:
    # A start that was cut off may leave the lock, or an identity file not yet renamed.
    ours = IDENTITY_FILE in names
    strangers = [n for n in names if n != _LOCK_FILE and not n.startswith(IDENTITY_FILE)]
    if strangers and not ours:
        raise FormatError(
            f"{path} is not a data folder of Anabranch: it holds {strangers[0]!r} but no "
            f"{IDENTITY_FILE}; choose an empty or new folder with --data"
        )


def _document(cluster_id: str, created_ms: int) -> bytes:
    fields = {
        "magic": _MAGIC,
        "version": _VERSION,
        "cluster_id": cluster_id,
        "created_ms": created_ms,
    }
    return json.dumps(fields, indent=2).encode() + b"\n"


def read_identity(file: str, content: bytes) -> str:
    """The cluster that an identity file names.

    Raises:
        FormatError: if it is none, or of a version this build does not know.
    """
    try:
        document = json.loads(content)
    except ValueError as error:
        raise FormatError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("magic") != _MAGIC:
        raise FormatError(f"{file} is not the identity of an Anabranch data folder")
    if document.get("version") != _VERSION:
        raise FormatError(
            f"{file} has format version {document.get('version')!r}; this build knows {_VERSION}"
        )
    cluster_id = document.get("cluster_id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise FormatError(f"{file} names no cluster_id")
    return cluster_id
