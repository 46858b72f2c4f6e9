"""Finds the endpoint of a path, on the bytes the client sent.

Each segment is decoded exactly once, after the path was split: a slash that was encoded stays part
of its name, and a name that still looks encoded afterwards is refused. Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from anabranch.admin.endpoints import DOMAINS, Endpoint
from anabranch.admin.limits import PATH_BYTES_MAX
from anabranch.admin.refusals import RestRefused

_STILL_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(slots=True)
class _Step:
    """What may follow a beginning of a path."""

    literal: dict[str, "_Step"] = field(default_factory=dict)
    named: dict[str, "_Step"] = field(default_factory=dict)
    methods: dict[str, Endpoint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """Who serves a path, by method, and the names in it."""

    methods: dict[str, Endpoint]
    names: dict[str, str]


class Router:
    """All endpoints as a tree of segments; a literal segment goes before a name."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Step()
        for endpoint in endpoints:
            step = self._root
            for segment in endpoint.path.strip("/").split("/"):
                if segment.startswith("{"):
                    step = step.named.setdefault(segment[1:-1], _Step())
                else:
                    step = step.literal.setdefault(segment, _Step())
            assert endpoint.method not in step.methods, f"{endpoint.path} is there twice"
            step.methods[endpoint.method] = endpoint

    def find(self, raw_path: bytes) -> Found | None:
        """Return what is at a path, None if nothing is.

        Raises:
            RestRefused: if a segment is broken, or encoded twice.
        """
        if len(raw_path) > PATH_BYTES_MAX:
            raise RestRefused(414, f"the path has more than {PATH_BYTES_MAX} bytes")
        segments = [_decoded(part) for part in raw_path.strip(b"/").split(b"/")]
        found = _walk(self._root, segments, 0)
        if found is None:
            return None
        for name in found.names.values():
            if _STILL_ENCODED.search(name):
                raise RestRefused(412, f"a name in the path is encoded twice: {name[:80]!r}")
        return found


def _walk(step: _Step, segments: list[str], place: int) -> Found | None:
    if place == len(segments):
        return Found(step.methods, {}) if step.methods else None
    segment = segments[place]
    following = step.literal.get(segment)
    if following is not None:
        found = _walk(following, segments, place + 1)
        if found is not None:
            return found
    for name, following in step.named.items():
        possible = segment in DOMAINS if name == "domain" else segment
        found = _walk(following, segments, place + 1) if possible else None
        if found is not None:
            found.names[name] = segment
            return found
    return None


def _decoded(part: bytes) -> str:
    if _BROKEN_ESCAPE.search(part):
        raise RestRefused(400, "the path has a percent sign that encodes nothing")
    try:
        segment = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise RestRefused(400, "the path is not UTF-8") from None
    if any(character < " " or character == "\x7f" for character in segment):
        raise RestRefused(400, "the path has control characters")
    return segment
