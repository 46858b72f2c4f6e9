"""Bounds that only the broker uses; all others are in `anabranch.limits`."""

from typing import Final

from anabranch import limits

HANDSHAKE_FRAME_BYTES_MAX: Final = 64 * 1024
"""Of a frame from a peer that has not said who it is."""
HANDSHAKE_S_MAX: Final = 10.0
"""For a peer to say who it is."""
TOPIC_PATTERN_CHARACTERS_MAX: Final = 50
"""Of a pattern that the broker itself matches; Pulsar's own bound."""
TOPIC_WATCHERS_PER_CONNECTION_MAX: Final = 1000
TOPICS_PER_SLICE: Final = 50
"""Topics looked after, or brought up to date, before others get the loop."""
NAMES_PER_SLICE: Final = 100
"""Names of topics put into a list before others get the loop."""
NAMES_MATCHED_PER_SLICE: Final = 20
"""Names of topics held against a pattern before others get the loop."""
PATTERNS_PER_SLICE: Final = 5
"""Patterns whose lists of names change before others get the loop."""
WATCHERS_PER_SLICE: Final = 20
"""Watchers told of topics before others get the loop."""
SCHEMA_BYTES_MAX: Final = 1024 * 1024
"""Of one schema's definition."""
SCHEMA_DEPTH_MAX: Final = 64
"""Types within types of a schema whose changes are judged."""
SCHEMA_COMPARED_DEPTH_MAX: Final = 200
"""Types within types when two schemas are compared, named ones followed."""
SCHEMA_COMPARED_STEPS_MAX: Final = 100_000
"""Types and fields looked at when two schemas are compared: some 0.1 s."""
REFUSAL_CHARACTERS_MAX: Final = 1000
"""Of the reason a client is told: it may quote what the client sent."""
TOPIC_EPOCH_MAX: Final = 2**62
"""A stored epoch above it was never drawn; the next one must fit the wire."""
PRODUCERS_WAITING_MAX: Final = 5000
"""For their turn to own one topic; more are refused."""
SEQUENCE_ID_MAX: Final = 2**63 - 1
"""What a cursor can remember."""
FAILOVER_DELAY_S: Final = 1.0
"""How long nobody is sent anything when another consumer takes over from one that is still there:
what that one acknowledges meanwhile is not delivered twice."""
REQUESTS_PER_CONNECTION_MAX: Final = 5000
"""Being served at once; a connection with more is not read from until half of them are answered."""
BATCH_MESSAGES_MAX: Final = 64 * limits.ACK_SET_WORDS_MAX
"""More messages than this a batch is not taken to hold, whatever its producer says."""
CLIENT_NAME_CHARACTERS_MAX: Final = 1024
"""Of the name of a producer or consumer: names are kept when those who had them are gone."""
CLIENT_METADATA_CHARACTERS_MAX: Final = 1024
"""Of what a producer or consumer says of itself, keys and values together; Pulsar's default."""
CHUNKED_MESSAGES_MAX: Final = 1000
"""Of one subscription whose chunks are not all sent; the oldest are forgotten."""
HASHED_BYTES_MAX: Final = 1024
"""Of a key or name; of a longer one a digest is hashed, which costs and keeps less."""
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
DELAYED_TICK_MS_MAX: Final = 60 * 60 * 1000
"""However coarse a policy wants it: a message is never later than that."""
LATENCY_SAMPLE_S_MAX: Final = 30.0
"""A sample that is under way for longer does not keep the next one from beginning."""
RATES_INTERVAL_S: Final = 60.0
"""Rates are of the last whole one of these."""
DELAYED_LOOK_S_MAX: Final = 60.0
"""How soon the wall clock is looked at again, however late the next entry is due."""
DEDUPLICATION_PRODUCERS_MAX: Final = 10_000
"""Producers of one topic whose last sequence id is remembered; those unheard of for longest go."""
DEDUPLICATION_SNAPSHOT_ENTRIES: Final = 1_000
"""After so many entries what is remembered is stored; the rest is read from the log at a start."""
SUBSCRIBERS_COUNTED_MAX: Final = 10_000
"""Consumers of one topic whose subscribing is counted; those counted for longest are forgotten."""
TOPIC_PATTERN_STATES_MAX: Final = 2000
"""What a pattern with repeats may grow to."""
TOPIC_NEWS_DELAY_S: Final = 0.1
"""How long changes of a namespace are gathered before its watchers are told."""
