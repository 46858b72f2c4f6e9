"""The bounds of the Spark data source, unit in the name."""

from typing import Final

from anabranch.limits import KIB, MIB

FEED_QUEUE_MESSAGES: Final = 50_000
FEED_QUEUE_BYTES: Final = 16 * MIB
"""What the broker may send ahead of a task."""
SCAN_BYTES: Final = 1 * MIB
"""The same for a driver that only wants to know how large entries are."""
CHUNK_BYTES: Final = 4 * MIB
"""Entries that become one Arrow batch."""
SMALL_TASK_BYTES: Final = 1 * MIB
"""Of a stream: what several topics have less of together is read by one task."""
LOOK_BACK_ENTRIES: Final = 64
"""How far before a range the beginning of a message in chunks is looked for first."""
LOOK_BACK_FACTOR: Final = 8
"""How much farther each time it is not there."""
READ_WAIT_S: Final = 120.0
"""How long a task waits for its next entry, as Spark's Kafka source does."""
SINK_BATCH_MESSAGES: Final = 1000
SINK_BATCH_BYTES: Final = 1 * MIB
SINK_GATHERED_BYTES: Final = 32 * MIB
"""Rows of a task that wait until there is a batch of them for their partition."""
SURELY_TAKEN_BYTES: Final = 4 * KIB
"""A row of at most this size need not be compared with what a broker takes."""
SINK_PENDING_MESSAGES: Final = 20_000
"""Rows of a task that are sent and not answered."""
WEB_TIMEOUT_S: Final = 30.0
WEB_ANSWER_BYTES_MAX: Final = 64 * MIB
IDLE_POLL_S: Final = 0.25
"""How often a query that has nothing to do looks for news."""
TRIGGER_DELAY_S: Final = 900.0
"""How long a stream waits for a batch that is large enough, as Spark's Kafka source does."""
PROBE_S_MAX: Final = 60.0
"""How long a program may take to say which version it is."""
ARROW_BATCH_ROWS: Final = 10_000
SHUFFLE_PARTITIONS_PER_CORE: Final = 2
"""So few that each is worth a task, and enough that one slow task does not matter."""
PROGRESS_INTERVAL_S: Final = 0.5
"""How often a job asks how many of its tasks are done."""
RULES_TOLD_RECORDS: Final = 10_000
"""How often it is told how many doubtful records were judged."""
PARTS_AT_ONCE_PER_CORE: Final = 4
"""Of a job: when so many parts are done, what came of them is kept and told."""
INVENTORY_AGE_S_MIN: Final = 3600.0
"""A ledger that nothing names is no orphan before: its maker may be about to name it."""
INVENTORY_SHOWN_MAX: Final = 1000
"""Of orphans and missing ledgers that a verdict shows; the table has all."""
SIZES_SHOWN_MAX: Final = 100
"""Of namespaces and of topics, the largest."""
SUSPECTS_PER_TASK: Final = 500
"""Ledgers that seem unused, looked at again by one task."""
PARTS_PER_CORE: Final = 16
"""Of a tree: so many that one slow part does not matter, and few that each is worth a task."""
