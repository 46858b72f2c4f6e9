"""Who is calling."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """What credentials have shown."""

    role: str
    method: str
    """How it was shown: token, basic, tls, anonymous."""
    expires_ms: int | None = None

    def has_expired(self, now_ms: int) -> bool:
        """Whether the credentials are no longer worth anything."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class Caller:
    """A role, and the role on whose behalf it acts if it is a proxy's."""

    role: str
    original: str | None = None

    def __str__(self) -> str:
        return self.role if self.original is None else f"{self.original} through {self.role}"
