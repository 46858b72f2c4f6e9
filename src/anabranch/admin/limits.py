"""Bounds of the web interface alone."""

from typing import Final

BODY_BYTES_MAX: Final = 1024 * 1024
"""Of one request; the largest are schemas."""
JSON_DEPTH_MAX: Final = 32
PATH_BYTES_MAX: Final = 8 * 1024
PEEK_MESSAGES_MAX: Final = 1_000
"""How far beyond the acknowledged ones a message may be looked at."""
SHOWN_HEADER_BYTES_MAX: Final = 60 * 1024
"""Of what is said about a message beside its payload; clients read lines of 64 KiB."""
ANALYZED_ENTRIES_MAX: Final = 10_000
"""That are read to count what is in a backlog, as Pulsar does."""
OTHER_BROKER_ANSWER_S_MAX: Final = 30.0
"""How long another broker may take that is asked about a partition or bundle it has."""
OTHER_BROKER_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the statistics of one topic, at most."""
OTHER_BROKER_REDIRECTS_MAX: Final = 5
"""Brokers that a request may be sent to, each by the one before."""
