"""The file that a checkpoint is kept in."""

from anabranch.errors import StorageError
from anabranch.metadata.transfer import checkpoint as checkpoints
from anabranch.metadata.transfer.checkpoint import Checkpoint
from anabranch.runtime import Disk


class CheckpointFile:
    """Of one copy; without a name there is none, and nothing is kept."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name

    async def load(self) -> Checkpoint | None:
        """What an earlier run left.

        Raises:
            FormatError: if the file is something else.
            Corruption: if it is damaged.
            StorageError: if it cannot be read.
        """
        try:
            if not self._name or not await self._disk.exists(self._name):
                return None
            return checkpoints.decode(self._name, await self._disk.read(self._name))
        except OSError as error:
            raise StorageError(f"cannot read {self._name}: {error}") from error

    async def store(self, checkpoint: Checkpoint | None) -> None:
        """Replace it; None: the copy is done, and nothing is left to go on with.

        Raises:
            StorageError: if the disk fails.
        """
        if not self._name:
            return
        try:
            if checkpoint is None:
                await self._disk.remove(self._name)
            else:
                await self._disk.replace(self._name, checkpoints.encode(checkpoint))
        except OSError as error:
            raise StorageError(f"cannot write {self._name}: {error}") from error
