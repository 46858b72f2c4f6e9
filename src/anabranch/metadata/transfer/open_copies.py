"""Word, in a target, of a copy that has nodes open there to whoever makes it.

The note stands before the first of them is written, and goes when all of them have their own
rights. So a copy that was killed is noticed: by the same copy when it is made again, and by whoever
looks at the target.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Protocol

from anabranch.errors import FormatError

MAGIC: Final = "anabranch-open-copy"
FORMAT_VERSION: Final = 1


class NotePlace(Protocol):
    """Where a target keeps such notes, out of sight of who reads its nodes."""

    async def put(self, name: str, note: bytes) -> None:
        """Leave a note, or replace it.

        Raises:
            InputError: if somebody else left it.
        """
        ...

    async def all(self) -> dict[str, bytes]:
        """The notes that are there, by name."""
        ...

    async def remove(self, name: str) -> None:
        """Take a note away, if it is there."""
        ...


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """A copy that has nodes open, or may have."""

    source: str
    prefix: str
    begun_ms: int
    checkpoint: str = ""
    """File by which it can go on; empty: none."""

    @property
    def name(self) -> str:
        """The same for every run of the same copy."""
        return blake2b(f"{self.source}\0{self.prefix}".encode(), digest_size=16).hexdigest()

    @property
    def sentence(self) -> str:
        """What somebody should know who looks at the target."""
        begun = datetime.fromtimestamp(self.begun_ms / 1000, UTC).isoformat(timespec="seconds")
        how = f" with the same checkpoint, {self.checkpoint}," if self.checkpoint else ""
        return (
            f"a copy of {self.source} begun at {begun} has not ended: nodes at and below "
            f"{self.prefix} may be open to who made it, and if that is nobody by name, to "
            f"everybody; if it runs no more, the same copy{how} by the same identity closes them"
        )


def encode(copy: OpenCopy) -> bytes:
    """The content of a note."""
    return json.dumps({"format": MAGIC, "version": FORMAT_VERSION, **asdict(copy)}).encode()


def decode(name: str, note: bytes) -> OpenCopy:
    """Undo `encode`.

    Raises:
        FormatError: if it is none, or one of a version this build does not know.
    """
    try:
        body: dict[str, Any] = json.loads(note)
    except ValueError:
        raise FormatError(f"the note {name} of an open copy is no JSON") from None
    if not isinstance(body, dict) or body.pop("format", None) != MAGIC:
        raise FormatError(f"the note {name} is not one of an open copy")
    if (version := body.pop("version", None)) != FORMAT_VERSION:
        raise FormatError(
            f"the note {name} of an open copy has format {version}: "
            f"this build knows {FORMAT_VERSION}"
        )
    try:
        return OpenCopy(**body)
    except TypeError:
        raise FormatError(f"the note {name} of an open copy has other fields") from None


async def sentences_of(place: NotePlace) -> list[str]:
    """What is to be said of the copies that may have nodes open in a target."""
    found = []
    for name, note in sorted((await place.all()).items()):
        try:
            found.append(decode(name, note).sentence)
        except FormatError as error:
            found.append(f"some copy has not ended, and may have left nodes open: {error}")
    return found


class Announcement:
    """The note of one copy."""

    def __init__(self, place: NotePlace, copy: OpenCopy) -> None:
        self._place = place
        self._copy = copy
        self._there = False

    async def take_over(self) -> bool:
        """Whether an earlier run left its note; if so it is ours from now on.

        Raises:
            InputError: if somebody else made that run, so that we could not close its nodes.
        """
        if self._copy.name not in await self._place.all():
            return False
        await self.make()
        return True

    async def make(self) -> None:
        """Leave the note, unless it is there."""
        if not self._there:
            await self._place.put(self._copy.name, encode(self._copy))
            self._there = True

    async def withdraw(self) -> None:
        """Nothing is open any more."""
        if self._there:
            await self._place.remove(self._copy.name)
            self._there = False
