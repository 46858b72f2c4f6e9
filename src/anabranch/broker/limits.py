"""Bounds that only the broker uses; all others are in `anabranch.limits`."""

from typing import Final

TOPIC_PATTERN_CHARACTERS_MAX: Final = 50
"""Of a pattern that the broker itself matches; Pulsar's own bound."""
TOPIC_WATCHERS_PER_CONNECTION_MAX: Final = 1000
TOPICS_PER_UPKEEP_SLICE: Final = 50
"""Topics looked after before others get the loop."""
SCHEMA_BYTES_MAX: Final = 1024 * 1024
"""Of one schema's definition."""
SCHEMA_DEPTH_MAX: Final = 64
"""Types within types of a schema whose changes are judged."""
FAILOVER_DELAY_S: Final = 1.0
"""How long nobody is sent anything when another consumer takes over from one that is still there:
what that one acknowledges meanwhile is not delivered twice."""
KEY_POINTS_PER_CONSUMER: Final = 100
"""On the ring of hashes; the more, the more even are the shares."""
KEY_HASHES: Final = 65_536
"""How many hashes of keys there are: sticky ranges are named in them."""
ENTRIES_AHEAD_PER_CONSUMER_MAX: Final = 2_000
"""Entries of a Key_Shared subscription that were read and wait for their consumer, per consumer."""
ENTRIES_AHEAD_MAX: Final = 20_000
"""The same for all consumers together."""
DELAYED_ENTRIES_MAX: Final = 50_000
"""Entries to be delivered later that a subscription remembers; the latest are read again."""
DELAYED_TICK_MS: Final = 100
"""How exact delayed delivery is: not before its time, and not a tick after it."""
DELAYED_LOOK_S_MAX: Final = 60.0
"""How soon the wall clock is looked at again, however late the next entry is due."""
DEDUPLICATION_PRODUCERS_MAX: Final = 10_000
"""Producers of one topic whose last sequence id is remembered; those unheard of for longest go."""
DEDUPLICATION_SNAPSHOT_ENTRIES: Final = 1_000
"""After so many entries what is remembered is stored; the rest is read from the log at a start."""
DEDUPLICATION_SNAPSHOT_S: Final = 120.0
"""The same after so long."""
TOPIC_PATTERN_STATES_MAX: Final = 2000
"""What a pattern with repeats may grow to."""
TOPIC_NEWS_DELAY_S: Final = 0.1
"""How long changes of a namespace are gathered before its watchers are told."""
