"""Bounds of the SDK alone; those that the server shares are in `anabranch.limits`."""

from typing import Final

from anabranch.limits import KIB, MESSAGE_BYTES_MAX, MIB

REQUEST_TIMEOUT_S: Final = 30
RECONNECT_DELAY_S_MIN: Final = 0.1
RECONNECT_DELAY_S_MAX: Final = 10.0
OPEN_TIMEOUT_S: Final = 30.0
"""How long a new producer, consumer or reader looks for a broker that takes it."""
BATCH_BYTES_MAX: Final = 128 * KIB
BATCH_DELAY_S: Final = 0.001
MESSAGE_OVERHEAD_BYTES: Final = 32
"""What a message or a property in a batch takes beside its own bytes, at most."""
ENTRY_METADATA_BYTES: Final = 1 * KIB
"""Room that a batch leaves for what is said about it as a whole."""
PRODUCER_PENDING_MESSAGES: Final = 1000
PRODUCER_PENDING_BYTES: Final = 64 * MIB
"""Messages of a producer that are not answered yet; further senders wait."""
SEND_TIMEOUT_S: Final = 30.0
CONSUMER_QUEUE_MESSAGES: Final = 1000
CONSUMER_QUEUE_BYTES: Final = 64 * MIB
"""What a consumer is sent ahead."""
ACK_GROUP_DELAY_S: Final = 0.01
ACK_GROUP_IDS_MAX: Final = 1000
"""Acknowledgements that nobody waits for are sent together, after this time or so many."""
NEGATIVE_ACK_DELAY_S: Final = 60.0
CHUNKED_MESSAGES_MAX: Final = 100
"""Messages of which a consumer has some chunks and waits for others; the oldest is given up."""
CHUNKED_BYTES_MAX: Final = 256 * MIB
"""Bytes of such chunks."""
CHUNKS_PER_MESSAGE_MAX: Final = 10_000
CHUNKS_AGAIN_S: Final = 60.0
"""When chunks are asked for again that were dropped here."""
CHUNK_REDELIVERIES_MAX: Final = 10
"""How often a chunk may come without the beginning of its message before it is acknowledged."""
BURY_AGAIN_S_MIN: Final = 1.0
"""When a message comes again that the dead-letter topic did not take; longer after each failure."""
BURY_AGAIN_S_MAX: Final = 60.0
PARTITIONS_REFRESH_S: Final = 60.0
"""How often a producer or consumer looks whether a topic got more partitions."""
PATTERN_REFRESH_S: Final = 60.0
"""How often a consumer of a pattern looks for new topics."""
TOPICS_PER_CONSUMER_MAX: Final = 10_000
ADMIN_TIMEOUT_S: Final = 60.0
"""How long an answer of the web interface may take."""
ADMIN_SURVEY_S_MAX: Final = 900.0
"""The same where a whole metadata store is looked through first: a minute for a million nodes."""
ADMIN_ANSWER_BYTES_MAX: Final = 64 * MIB
ADMIN_REDIRECTS_MAX: Final = 5
ADMIN_IDLE_CONNECTIONS_MAX: Final = 4

assert BATCH_BYTES_MAX + ENTRY_METADATA_BYTES < MESSAGE_BYTES_MAX < PRODUCER_PENDING_BYTES
