"""The error tree: whose fault, and whether to try again.

    AnabranchError
    ├── InputError            the caller asked for something wrong; nothing was changed
    │   ├── InvalidName
    │   ├── InvalidPath
    │   ├── ConfigError
    │   └── ProtocolError     the peer broke the wire protocol
    │       └── FrameTooLarge
    ├── ConflictError         somebody else was first; read again and decide
    │   ├── BadVersion
    │   ├── NotEmpty
    │   ├── Fenced
    │   ├── CatalogChanged    new ledgers belong to another storage cluster by now
    │   ├── LockBusy          somebody else holds the lock
    │   ├── SessionExpired    the session is over and so are its ephemeral nodes
    │   └── FolderInUse
    ├── Denied                the caller is not who may do this; nothing was changed
    │   ├── NotAuthenticated  nobody knows who that is
    │   └── NotAuthorized     it is known who that is, and they may not
    ├── NotFound
    ├── AlreadyClosed
    ├── Terminated            the topic was ended for good
    ├── Unreachable           nobody answers at an address
    ├── OutcomeUnknown        the request may or may not have taken effect
    ├── StorageError          the disk or a store failed
    │   ├── StoreFailed       a write or sync failed: this store accepts nothing more
    │   ├── StoreBusy         too much waits for the disk; nothing was changed
    │   ├── CursorTooLarge    acknowledgements with too many gaps to be stored
    │   └── DiskFull
    ├── Corruption            stored bytes are not what was written; names the position
    └── FormatError           a file or document of an unknown format or version

Operating errors are raised; programmer mistakes are asserts and end the process, or at least the
connection and the topic of the client that met them (see `broker.mishaps`). `retriable`
says whether the same request may succeed later without anybody changing it. No error repeats the
user and the password that a URL carries, wherever it is printed, logged or answered.
"""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

MASK: Final = "***"
_USER_INFO: Final = re.compile(r"""(://|\bzk:)[^\s/'"]+@""")


def without_user_info(text: str) -> str:
    """A text in which users and passwords of URLs are masked."""
    return _USER_INFO.sub(rf"\1{MASK}@", text) if "@" in text else text


class AnabranchError(Exception):
    """Base of everything this package raises on purpose."""

    retriable: ClassVar[bool] = False

    def __str__(self) -> str:
        return without_user_info(super().__str__())


class InputError(AnabranchError):
    """The request itself is wrong; nothing was changed."""


class InvalidName(InputError):
    """A topic, subscription or other name that the rules refuse."""


class InvalidPath(InputError):
    """A metadata path that is not absolute, or that ends in a slash."""


class ConfigError(InputError):
    """A setting that does not exist or cannot have this value."""


def refuse_user_info(url: str, server: str) -> None:
    """Refuse a server whose address says who asks: URLs are seen by others.

    Raises:
        ConfigError: if it does.
    """
    if "@" in server:
        raise ConfigError(f"{url!r} names a user: say who you are in a file of credentials")


class ProtocolError(InputError):
    """The peer sent bytes or commands that the protocol does not allow here."""

    decoded: Sequence[Any] = ()
    """What was understood of the same bytes before the place where they went wrong."""


class FrameTooLarge(ProtocolError):
    """A frame whose declared size is above the limit, refused before any allocation."""


class ConflictError(AnabranchError):
    """Somebody else was first: read the present state and decide again."""


class BadVersion(ConflictError):
    """A conditional write found another version than it expected."""

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(f"version mismatch at {path}" + (f": {detail}" if detail else ""))
        self.path = path


class NotEmpty(ConflictError):
    """A node with children cannot be deleted."""


class Fenced(ConflictError):
    """A newer owner has taken over; this one must stop writing."""


class CatalogChanged(ConflictError):
    """The catalog of storage clusters is not what a ledger was created under: create another."""

    retriable = True


class LockBusy(ConflictError):
    """Somebody else holds the lock; it is free when they release it or their session ends."""

    retriable = True

    def __init__(self, path: str, holder: bytes, detail: str = "") -> None:
        shown = holder[:80].decode(errors="backslashreplace")
        super().__init__(f"{path} is held by {shown!r}" + (f": {detail}" if detail else ""))
        self.path = path
        self.holder = holder


class SessionExpired(ConflictError):
    """The session has ended, and its ephemeral nodes with it; a new session may try again."""


class FolderInUse(ConflictError):
    """Another process holds the data folder."""


class Denied(AnabranchError):
    """The caller is not somebody who may do this; nothing was changed."""


class NotAuthenticated(Denied):
    """Who the caller is could not be told from what they have shown."""


class NotAuthorized(Denied):
    """It is known who the caller is, and they may not do this."""

    def __init__(self, text: str, right: str = "") -> None:
        super().__init__(text)
        self.right = right


class NotFound(AnabranchError):
    """The thing named does not exist."""


class AlreadyClosed(AnabranchError):
    """Used after it was closed."""


class Terminated(AnabranchError):
    """The topic was ended for good; what it holds can be read, nothing can be appended."""


class Unreachable(AnabranchError):
    """Nobody answers at the address named; nothing was asked of anybody."""

    retriable = True


class OutcomeUnknown(AnabranchError):
    """The request may or may not have taken effect; only reading back can tell."""


class StorageError(AnabranchError):
    """A disk or a store failed."""


class StoreFailed(StorageError):
    """A write or sync failed; the store accepts nothing more until it is opened again."""


class StoreBusy(StorageError):
    """So much waits for the disk that more is refused; nothing was changed."""

    retriable: ClassVar[bool] = True


class CursorTooLarge(StorageError):
    """The acknowledgements of a subscription have too many gaps; those stored before are safe."""


class EntryLost(StorageError):
    """Whoever should have an entry has answered, and has it no more."""


class DiskFull(StorageError):
    """No room was left; what was acknowledged before is safe."""

    retriable = True


class Corruption(AnabranchError):
    """Stored bytes are not what was written."""

    def __init__(self, file: str, offset: int, detail: str) -> None:
        super().__init__(f"corrupt data in {file} at byte {offset}: {detail}")
        self.file = file
        self.offset = offset
        self.detail = detail


class FormatError(AnabranchError):
    """A file or document of a foreign format, or of a version this build does not know."""
