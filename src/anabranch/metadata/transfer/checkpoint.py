"""The note by which an interrupted copy goes on. Pure."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from crc32c import crc32c

from anabranch.errors import Corruption, FormatError, InputError
from anabranch.metadata.transfer.digest import NO_NODES, Digest

MAGIC: Final = "anabranch-copy-checkpoint"
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a copy is. Everything up to `last_path` is in the target."""

    source: str
    target: str
    prefix: str
    overwrite: bool
    drop_acls: bool
    target_was_empty: bool
    last_path: str = ""
    """In path order; empty if nothing was copied yet."""
    digest: Digest = NO_NODES
    """Over what was copied, to know the source again."""
    uncertain_nodes: int = 0
    """So many nodes after `last_path` may be in the target, too."""
    version_map: str = ""
    version_map_bytes: int = 0
    """How much of the file of changed versions belongs to what was copied; 0: there is none."""
    versions_changed: int = 0

    def check_same(self, other: "Checkpoint") -> None:
        """Refuse to go on with a copy of something else.

        Raises:
            InputError: naming what is different.
        """
        for name in ("source", "target", "prefix", "overwrite", "drop_acls"):
            ours, wanted = getattr(self, name), getattr(other, name)
            if ours != wanted:
                raise InputError(
                    f"the checkpoint is of another copy: its {name.replace('_', ' ')} is "
                    f"{ours!r}, not {wanted!r}"
                )


def encode(checkpoint: Checkpoint) -> bytes:
    """The content of the file."""
    fields = asdict(checkpoint)
    fields["digest"] = [str(number) for number in checkpoint.digest]
    body = {"format": MAGIC, "version": FORMAT_VERSION, **fields}
    return json.dumps(body | {"checksum": _checksum(body)}, indent=1).encode()


def decode(file: str, content: bytes) -> Checkpoint:
    """Undo `encode`.

    Raises:
        FormatError: if it is no checkpoint, or one of a version this build does not know.
        Corruption: if it is damaged.
    """
    try:
        body: dict[str, Any] = json.loads(content)
    except ValueError:
        raise FormatError(f"{file} is not a checkpoint of a copy: it is no JSON") from None
    if not isinstance(body, dict) or body.get("format") != MAGIC:
        raise FormatError(f"{file} is not a checkpoint of a copy")
    if body.get("version") != FORMAT_VERSION:
        raise FormatError(
            f"{file} has format {body.get('version')}: this build knows {FORMAT_VERSION}"
        )
    if body.pop("checksum", None) != _checksum(body):
        raise Corruption(file, 0, "the checksum of the checkpoint is wrong")
    del body["format"], body["version"]
    body["digest"] = Digest(*map(int, body["digest"]))
    return Checkpoint(**body)


def _checksum(body: dict[str, Any]) -> int:
    return int(crc32c(json.dumps(body, sort_keys=True).encode()))
