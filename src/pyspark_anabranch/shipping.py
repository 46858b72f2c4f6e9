"""This code as an archive that Spark takes to the machines of its workers.

What it needs of other packages has to be installed there; the code itself is that of the driver,
whatever is installed there.
"""

import atexit
import shutil
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anabranch

_PACKAGES: Final = ("anabranch", "pyspark_anabranch")
_LEFT_OUT: Final = ("__pycache__", "testing")
"""Folders that no task needs."""


def is_elsewhere(master: str) -> bool:
    """Whether tasks run in other processes than the driver's Java."""
    return master != "local" and not master.startswith("local[")


def packed_packages() -> str:
    """Make an archive of the code, and return its path; it goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-shipped-"))
    atexit.register(shutil.rmtree, folder, True)
    archive = folder / f"anabranch-{version('anabranch')}.zip"
    root = Path(anabranch.__file__).parents[1]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _PACKAGES:
            for file in sorted((root / package).rglob("*")):
                within = file.relative_to(root)
                if file.is_file() and not set(_LEFT_OUT) & set(within.parts):
                    packed.write(file, str(within))
    return str(archive)
