"""Bounds of the web interface alone."""

from typing import Final

BODY_BYTES_MAX: Final = 1024 * 1024
"""Of one request; the largest are schemas."""
JSON_DEPTH_MAX: Final = 32
PATH_BYTES_MAX: Final = 8 * 1024
PEEK_MESSAGES_MAX: Final = 1_000
"""How far beyond the acknowledged ones a message may be looked at."""
