"""Folders that users name: of this machine, or of a file system that Arrow knows."""

from typing import Any

from pyarrow import fs


def folder_at(place: str) -> tuple[Any, str]:
    """The file system of a folder, and its path there."""
    if "://" in place or place.startswith("file:"):
        files, root = fs.FileSystem.from_uri(place)
    else:
        files, root = fs.LocalFileSystem(), place
    return files, root.rstrip("/")
