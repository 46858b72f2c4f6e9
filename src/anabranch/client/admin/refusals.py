"""What the web interface says when it does not do something: its status, and Pulsar's reason."""

import json

from anabranch.errors import AnabranchError, ConflictError, Denied, NotFound

_REASON_CHARACTERS_MAX = 500


class AdminRefused(AnabranchError):
    """A request that was not carried out."""

    def __init__(self, status: int, reason: str, request: str) -> None:
        super().__init__(f"{request}: {reason} (HTTP {status})")
        self.status = status
        self.reason = reason
        """What the server says, in its own words."""


class AdminNotFound(AdminRefused, NotFound):
    """There is no such thing."""


class AdminConflict(AdminRefused, ConflictError):
    """What is there already is in the way."""


class AdminDenied(AdminRefused, Denied):
    """Not for whoever this client says it is."""


_BY_STATUS: dict[int, type[AdminRefused]] = {
    401: AdminDenied,
    403: AdminDenied,
    404: AdminNotFound,
    409: AdminConflict,
}


def refusal(status: int, body: bytes, request: str) -> AdminRefused:
    """Make the error of an answer."""
    return _BY_STATUS.get(status, AdminRefused)(status, _reason(body), request)


def _reason(body: bytes) -> str:
    text = body.decode(errors="replace")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and isinstance(said.get("reason"), str):
        text = said["reason"]
    # Some answers of Pulsar are a page, or the trace of a mistake: one line says it.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.startswith("Message: "):
            return line.removeprefix("Message: ")[:_REASON_CHARACTERS_MAX]
    return lines[0][:_REASON_CHARACTERS_MAX] if lines else "no reason was given"
