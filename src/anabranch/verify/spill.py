"""What the memory budget of a check has no room for: a private temporary database on disk.

It lives in the folder for temporary files (`TMPDIR`) and is gone with the process.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

_CACHE_KIB: Final = 8192

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")


def private_database() -> sqlite3.Connection:
    """Open a database of its own in a temporary file, which is gone when it is closed."""
    # An empty name says just that.
    database = sqlite3.connect("", isolation_level=None)
    database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    database.execute("PRAGMA journal_mode = OFF")
    return database


class Spill:
    """A store of blobs by number and of small values by name."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = private_database()
            self._db.execute("CREATE TABLE blobs (id INTEGER PRIMARY KEY, data BLOB)")
            self._db.execute("CREATE TABLE named (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
            self._db.execute("BEGIN")
        return self._db

    def put_blob(self, data: bytes, number: int | None = None) -> int:
        """Keep bytes, in place of those with the number if one is given; return their number."""
        done = self._open().execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", (number, data))
        assert done.lastrowid is not None, "an insert has a row"
        return done.lastrowid

    def get_blob(self, number: int) -> bytes:
        """Return the bytes of a number."""
        row = self._open().execute("SELECT data FROM blobs WHERE id = ?", (number,)).fetchone()
        data: bytes = row[0]
        return data

    def put_named(self, items: Iterable[tuple[str, str]]) -> None:
        """Keep values by name, in place of earlier ones."""
        self._open().executemany("INSERT OR REPLACE INTO named VALUES (?, ?)", items)

    def get_named(self, name: str) -> str | None:
        """Return the value of a name."""
        found = self._open().execute("SELECT value FROM named WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def named(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield every name with a prefix, and its value, in the order of names."""
        query = "SELECT name, value FROM named WHERE name >= ? AND name < ? ORDER BY name"
        yield from self._open().execute(query, (prefix, prefix + "\U0010ffff"))

    def close(self) -> None:
        """Let go of the file."""
        if self._db is not None:
            self._db.close()
            self._db = None


class SpilledMap(Generic[K, V]):
    """A dict of tuples to JSON values that moves to disk whenever it has grown to its bound."""

    def __init__(self, title: str, spill: Spill, *, entries_max: int) -> None:
        self._prefix = f"{title}:"
        self._spill = spill
        self._entries_max = entries_max
        self._hot: dict[K, V] = {}
        self._has_cold = False

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it has none."""
        value = self._hot.get(key)
        if value is None and self._has_cold:
            text = self._spill.get_named(self._name(key))
            if text is not None:
                value = json.loads(text)
                self.set(key, value)
        return value

    def set(self, key: K, value: V) -> None:
        """Keep a value."""
        if len(self._hot) >= self._entries_max and key not in self._hot:
            self._cool()
        self._hot[key] = value

    def _cool(self) -> None:
        items = ((self._name(key), json.dumps(value)) for key, value in self._hot.items())
        self._spill.put_named(items)
        self._hot.clear()
        self._has_cold = True

    def _name(self, key: K) -> str:
        return self._prefix + json.dumps(key)

    def items(self) -> Iterator[tuple[tuple[Any, ...], V]]:
        """Yield every key, as a plain tuple, and its value."""
        if not self._has_cold:
            for key, value in self._hot.items():
                yield tuple(key), value
            return
        self._cool()
        for name, text in self._spill.named(self._prefix):
            yield tuple(json.loads(name[len(self._prefix) :])), json.loads(text)
