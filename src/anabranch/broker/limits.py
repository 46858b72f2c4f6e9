"""Bounds that only the broker uses; all others are in `anabranch.limits`."""

from typing import Final

POLICY_CHECK_INTERVAL_S: Final = 60.0
"""Between two looks at what only time brings: expiry, quotas, topics that nobody uses."""
TOPIC_PATTERN_CHARACTERS_MAX: Final = 50
"""Of a pattern that the broker itself matches; Pulsar's own bound."""
TOPIC_WATCHERS_PER_CONNECTION_MAX: Final = 1000
TOPICS_PER_UPKEEP_SLICE: Final = 50
"""Topics looked after before others get the loop."""
SCHEMA_BYTES_MAX: Final = 1024 * 1024
"""Of one schema's definition."""
SCHEMA_DEPTH_MAX: Final = 64
"""Types within types of a schema whose changes are judged."""
