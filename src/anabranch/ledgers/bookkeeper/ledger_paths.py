r"""Where BookKeeper keeps what in a metadata store, and the document that says how. Pure.

/ledgers/LAYOUT                     "2\n<factory class>:<its version>"; none in clusters of Pulsar
/ledgers/available/<bookie>         ephemeral: a bookie that takes entries
/ledgers/available/readonly/<id>    ephemeral: one that only gives them
/ledgers/idgen/ID-                  how ids of the short form are drawn
/ledgers/idgen-long/HOB-<n>/ID-     how those of the long form are, once that node exists
/ledgers/00/0000/L0007              a ledger, in the short form
/ledgers/000/0000/0021/4748/L3647   one in the long form
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.errors import FormatError, InputError
from anabranch.ledgers.id_forms import long_form, parse_form, path_form
from anabranch.metadata.paths import check_path

ROOT: Final = "/ledgers"
_LAYOUT_VERSION: Final = 2
_FACTORY_VERSION: Final = 1
_PACKAGE: Final = "org.apache.bookkeeper.meta."
_OTHER_LAYOUTS: Final = ("FlatLedgerManagerFactory", "LegacyHierarchicalLedgerManagerFactory")
_SHORT: Final = re.compile(r"\d{2}/\d{4}/L\d{4}")
_LONG: Final = re.compile(r"\d{3}/\d{4}/\d{4}/\d{4}/L\d{4}")


class Layout(Enum):
    """How ids become paths; the value is the class that BookKeeper knows it by."""

    HIERARCHICAL = "HierarchicalLedgerManagerFactory"
    """Short forms as long as they last, then long ones. Pulsar's metadata driver has no other."""
    LONG_HIERARCHICAL = "LongHierarchicalLedgerManagerFactory"
    """Long forms alone."""


def encode_layout(layout: Layout) -> bytes:
    """The document that stands for a layout."""
    return f"{_LAYOUT_VERSION}\n{_PACKAGE}{layout.value}:{_FACTORY_VERSION}".encode()


def decode_layout(path: str, value: bytes) -> Layout:
    """The layout that a document stands for.

    Raises:
        FormatError: naming the path, if it is no such document or no layout that is known here.
    """
    lines = value.decode(errors="replace").rstrip("\n").split("\n")
    if lines[0] != str(_LAYOUT_VERSION) or len(lines) != 2:
        raise FormatError(
            f"{path} is not a layout of version {_LAYOUT_VERSION}: it begins with {value[:80]!r}"
        )
    factory, _, version = lines[1].partition(":")
    name = factory.removeprefix(_PACKAGE)
    if name in _OTHER_LAYOUTS:
        raise FormatError(
            f"{path} says {name}: only the hierarchical layouts are served, not that one"
        )
    known = {layout.value: layout for layout in Layout}
    if name not in known or name == factory:
        raise FormatError(f"{path} names the unknown layout {factory[:80]!r}")
    if version != str(_FACTORY_VERSION):
        raise FormatError(
            f"{path} has version {version[:20]!r} of {name}; this build knows {_FACTORY_VERSION}"
        )
    return known[name]


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """The paths of one cluster of bookies."""

    root: str = ROOT
    layout: Layout = Layout.HIERARCHICAL

    def __post_init__(self) -> None:
        if check_path(self.root) == "/":
            raise InputError("ledgers have a folder of their own, such as /ledgers, not the root")

    @property
    def layout_document(self) -> str:
        """Where the layout is said."""
        return f"{self.root}/LAYOUT"

    @property
    def available(self) -> str:
        """What the bookies are below."""
        return f"{self.root}/available"

    @property
    def read_only(self) -> str:
        """What the bookies that take no entries are below."""
        return f"{self.root}/available/readonly"

    @property
    def short_ids(self) -> str:
        """Whose children number the ids of the short form."""
        return f"{self.root}/idgen"

    @property
    def long_ids(self) -> str:
        """What the upper halves of the ids of the long form are below."""
        return f"{self.root}/idgen-long"

    def ledger(self, ledger_id: int) -> str:
        """Where a ledger's metadata are.

        Raises:
            InputError: if it is no ledger id.
        """
        long_only = self.layout is Layout.LONG_HIERARCHICAL
        return f"{self.root}/{(long_form if long_only else path_form)(ledger_id)}"

    def ledger_id(self, path: str) -> int | None:
        """Which ledger's metadata are at a path; None if it is not the place of one."""
        form = path.removeprefix(f"{self.root}/")
        if form == path or not (_SHORT.fullmatch(form) or _LONG.fullmatch(form)):
            return None
        try:
            ledger_id = parse_form(form)
        except InputError:
            return None
        return ledger_id if self.ledger(ledger_id) == path else None

    def levels(self) -> tuple[tuple[re.Pattern[str], ...], ...]:
        """The names on the way to ledgers, level by level: first to smaller ids, then to larger."""
        four, leaf = re.compile(r"\d{4}"), re.compile(r"L\d{4}")
        long_way = (re.compile(r"\d{3}"), four, four, four, leaf)
        if self.layout is Layout.LONG_HIERARCHICAL:
            return (long_way,)
        return ((re.compile(r"\d{2}"), four, leaf), long_way)
