"""Where a drill keeps its data: in a folder that is named, or in one that goes if all is well."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DrillFolder:
    """The folder of one run of a drill."""

    path: Path
    is_own: bool
    """Whether nobody asked for it."""

    @classmethod
    def named(cls, wanted: Path | None, prefix: str) -> "DrillFolder":
        """The folder that was asked for, or a new one."""
        if wanted is not None:
            return cls(wanted, is_own=False)
        return cls(Path(tempfile.mkdtemp(prefix=prefix)), is_own=True)

    def drop_unless_wanted(self) -> None:
        """The drill found nothing: nobody has to look into its data."""
        if self.is_own:
            shutil.rmtree(self.path)
