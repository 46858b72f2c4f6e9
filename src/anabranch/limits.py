"""Every bound in one place, unit in the name. Relations between bounds are asserted here.

Nothing but constants lives here; a module that needs a bound imports it from here. Bounds that one
folder alone needs are in its own `limits` (`admin`, `broker`, `client`, `ownership`, `policies`,
`verify`), those of the doctor in `cli.machine`, those of servers that tests start in
`testing.servers.limits`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- wire -------------------------------------------------------------------------------------
MESSAGE_BYTES_MAX: Final = 5 * MIB
"""Largest metadata + payload of one entry, as Pulsar's default maxMessageSize."""
FRAME_PADDING_BYTES: Final = 10 * KIB
"""Room for the command and sizes around a message, as Pulsar's frame decoder allows."""
ENTRY_OVERHEAD_BYTES: Final = FRAME_PADDING_BYTES - 1 * KIB
"""What an entry may have above the message limit, since clients do not count all of it.
The rest of the padding is for the command that delivers it."""
FRAME_BYTES_MAX: Final = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES
KEEP_ALIVE_INTERVAL_S: Final = 30
LIVENESS_CHECK_S: Final = 5
"""How long an old connection may take to answer before a newcomer gets its place."""
CLOSE_DRAIN_S_MAX: Final = 10
"""How long a connection that is being closed waits for its peer to take what was queued."""
PENDING_PUBLISHES_PER_CONNECTION_MAX: Final = 1000
"""Publishes not yet durable before reading from a connection pauses."""
PENDING_PUBLISH_BYTES_PER_CONNECTION_MAX: Final = 64 * MIB

# --- clients -----------------------------------------------------------------------------------
CONNECT_TIMEOUT_S: Final = 10
LOOKUP_REDIRECTS_MAX: Final = 20
BATCH_MESSAGES_MAX: Final = 1000
UNCOMPRESSED_BYTES_MAX: Final = 128 * MIB
"""An entry that says it unpacks to more is not unpacked."""
PRODUCER_KEYS_REMEMBERED_MAX: Final = 1000
"""Keys that producers encrypt with, kept by a reader so that each is found once."""

# --- dispatch ---------------------------------------------------------------------------------
READ_BATCH_ENTRIES_MAX: Final = 100
READ_BATCH_BYTES_MAX: Final = 5 * MIB
DISPATCH_BATCHES_PER_TURN_MAX: Final = 4
"""Batches that a subscription sends from the cache before it looks whether its peers keep up."""
UNACKED_MESSAGES_PER_CONSUMER_MAX: Final = 50_000
"""A consumer of a shared subscription gets no more until it has acknowledged down to half of it."""
UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX: Final = 200_000
"""A shared subscription sends nothing new until its consumers have acknowledged down to half."""
UNREADABLE_ENTRY_RETRY_S_MIN: Final = 1.0
UNREADABLE_ENTRY_RETRY_S_MAX: Final = 60.0
"""How long a subscription waits at an entry that cannot be read: twice as long each time."""
RETURN_AFTER_SEEK_S_MAX: Final = 60.0
"""How long a subscription that is not durable outlives a seek, which closes its consumers."""
ROUND_ROBIN_ENTRIES_MAX: Final = 20
"""Entries one consumer of a shared subscription gets before the next one's turn."""

# --- topics ------------------------------------------------------------------------------------
PARTITIONS_MAX: Final = 100_000
"""More in a stored document is damage, not a topic."""

# --- metadata ---------------------------------------------------------------------------------
METADATA_VALUE_BYTES_MAX: Final = 1 * MIB
METADATA_PATH_BYTES_MAX: Final = 8 * KIB
CREDENTIALS_FILE_BYTES_MAX: Final = 64 * KIB
METADATA_INDEXES_PER_NODE_MAX: Final = 16
METADATA_INDEX_BYTES_MAX: Final = 1 * KIB
"""Of a secondary index's name and key together."""
METADATA_UNREAD_ANSWERS_MAX: Final = 1024
"""Requests of one session whose answers are kept until its client says that it has read them."""
METADATA_SESSIONS_MAX: Final = 10_000
METADATA_COMMAND_OPERATIONS_MAX: Final = 1000
"""Operations one log record carries; a longer batch goes as several."""
METADATA_COMMAND_BYTES_MAX: Final = 4 * MIB
"""Paths and values one log record carries; a larger batch goes as several."""
METADATA_PAGE_NODES_MAX: Final = 500
METADATA_PAGE_BYTES_MAX: Final = 1 * MIB
"""A scan or a snapshot looks at this much of the tree before others get the loop."""
METADATA_EVENT_HISTORY_MAX: Final = 65_536
"""Changes kept for watches that resume or read slowly; who needs an older one gets a gap."""
METADATA_WATCH_EVENTS_PER_TURN_MAX: Final = 256
METADATA_IN_FLIGHT_BYTES_MAX: Final = 64 * MIB
"""Commands of the embedded store that are not durable yet; further writers wait."""
METADATA_LOG_SEGMENT_BYTES: Final = 64 * MIB
METADATA_SNAPSHOT_AFTER_BYTES: Final = 4 * MIB
"""Log since the last snapshot before the next is due; so much is replayed at a start."""
METADATA_FRAME_BYTES_MAX: Final = 16 * MIB
METADATA_FRAME_BYTES_USUAL: Final = 1 * MIB
"""Requests and responses that were made together share frames of about this size."""
METADATA_EVENTS_PER_FRAME_MAX: Final = 500
METADATA_CURSORS_PER_CONNECTION_MAX: Final = 64
METADATA_LIST_IDLE_S_MAX: Final = 600.0
"""A server keeps a list for this long after its reader last asked for a page of it."""
METADATA_QUEUED_BYTES_PER_CONNECTION_MAX: Final = 16 * MIB
"""Answers not sent and writes not begun before reading from a connection pauses."""
METADATA_CONNECTIONS_MAX: Final = 10_000
METADATA_HANDSHAKE_S_MAX: Final = 10.0
METADATA_SESSION_TIMEOUT_S: Final = 30.0
METADATA_SESSION_TIMEOUT_S_MIN: Final = 0.5
METADATA_SESSION_TIMEOUT_S_MAX: Final = 3600.0
METADATA_SESSION_TICK_S: Final = 0.1
"""How often a server looks for sessions that have run out."""
METADATA_RECONNECT_DELAY_S_MIN: Final = 0.02
METADATA_RECONNECT_DELAY_S_MAX: Final = 1.0
METADATA_UNANSWERED_WRITES_MAX: Final = 512
"""Write requests that a client has under way; further writers wait."""
METADATA_UNANSWERED_WRITE_BYTES_MAX: Final = 8 * MIB
"""Their bytes together. The server has room for them and goes on reading: renewals get through."""
METADATA_ACLS_PER_NODE_MAX: Final = 64
METADATA_ACL_BYTES_MAX: Final = 4 * KIB
"""Of an access right's scheme and identity together."""
METADATA_EXPORT_BLOCK_BYTES_USUAL: Final = 256 * KIB
METADATA_EXPORT_BLOCK_BYTES_MAX: Final = 4 * MIB
"""Of an export file; a longer one is damage and not read."""
METADATA_COPY_SPAN_NODES: Final = 50_000
"""Nodes a copy writes between two checkpoints; so many are looked at again when it resumes."""
METADATA_COPY_COUNTERS_MAX: Final = 500_000
"""Nodes with sequential children that a copy remembers; beyond, it reads the source again."""
METADATA_COPY_NUMBERS_MAX: Final = 1000
"""Sequence numbers that a copy issues at a time to raise a counter."""
METADATA_COPY_READS_MAX: Final = 64
"""Single reads a copy or a command has under way."""
METADATA_COPY_CONFLICTS_SHOWN_MAX: Final = 5
METADATA_SORT_BYTES_MAX: Final = 64 * MIB
"""Records that are sorted in memory; more wait in files."""

# --- metadata on ZooKeeper --------------------------------------------------------------------
ZOOKEEPER_REQUEST_BYTES: Final = 0xFFFFF
"""What a server takes unless its `jute.maxbuffer` says otherwise; more ends the connection."""
ZOOKEEPER_REQUEST_BYTES_MIN: Final = 64 * KIB
ZOOKEEPER_REQUEST_BYTES_MAX: Final = 256 * MIB
ZOOKEEPER_REPLY_BYTES_MAX: Final = 256 * MIB
ZOOKEEPER_UNANSWERED_MAX: Final = 900
"""Requests under way on one connection; further ones wait here instead of in the server.

Above a thousand of all its clients a server stops reading (`globalOutstandingLimit`).
"""
ZOOKEEPER_PAGE_NODES_MAX: Final = 1000
"""Nodes that one request reads."""
ZOOKEEPER_PAGE_BYTES_USUAL: Final = 1 * MIB
"""Pages get shorter when their answers are larger than this."""
ZOOKEEPER_READ_AHEAD_PAGES: Final = 4
ZOOKEEPER_RESTORE_OPERATIONS_MAX: Final = 1000
"""Of one multi; what a node takes goes together, and alone if it is more."""
ZOOKEEPER_RESTORES_UNDER_WAY_MAX: Final = 4
"""Requests of a restore into an empty place on a fast server; pings wait behind them."""
ZOOKEEPER_RESTORED_VERSION_MAX: Final = 1000
"""A node gets its old version by so many writes; a larger one is not restored."""
ZOOKEEPER_RESTORED_SEQUENCE_MAX: Final = 1_000_000
"""A node gets its old sequence number by making and removing so many children."""

# --- servers reached by gRPC -------------------------------------------------------------------
GRPC_MESSAGE_BYTES_MAX: Final = 64 * MIB
GRPC_KEEP_ALIVE_S: Final = 10
"""How often an idle connection is tried, and how long the answer may take."""
OXIA_SESSION_TIMEOUT_S_MIN: Final = 2.0
OXIA_SESSION_TIMEOUT_S_MAX: Final = 300.0
"""What the server accepts."""
OXIA_CALL_S_MAX: Final = 30.0
OXIA_OPEN_S_MAX: Final = 10.0
OXIA_REQUEST_OPERATIONS_MAX: Final = 1000
OXIA_REQUEST_BYTES_MAX: Final = 4 * MIB
"""What one request to a shard carries; more goes as several."""
OXIA_REQUESTS_IN_FLIGHT_MAX: Final = 8
"""Write requests of one shard without an answer; further writes gather meanwhile."""
OXIA_KNOWN_WRITES_MAX: Final = 65_536
"""Recent writes whose place in history is remembered."""
OXIA_WRITE_TRIES_MAX: Final = 100
"""How often an unconditional write is tried again because others write the same node."""
OXIA_PRESERVED_VERSION_MAX: Final = 1_000_000
"""Larger versions keep their count of changes, but not Oxia's own number: no shard could be pushed
beyond it in reasonable time."""
OXIA_REMEMBERED_NODES_MAX: Final = 10_000
"""Nodes whose last known state saves a look before the next write."""
OXIA_LISTED_KEYS_MAX: Final = 20_000
"""Keys that are listed to learn which of many siblings have children; then each is asked for."""
OXIA_SHARDS_MAX: Final = 65_536

# --- coordination -----------------------------------------------------------------------------
LEASE_DRIFT_SHARE_MAX: Final = 0.05
"""How much of a session's timeout two clocks may drift apart; a lock is held that much shorter."""
LOCK_ACQUIRE_STEPS_MAX: Final = 30
"""Writes and reads of one attempt to take a lock that others take and let go all the time."""
LOCK_RETRY_S: Final = 1.0
"""How long who wants a lock waits for an answer or a session, unless it hears of it earlier."""
UPDATE_BACKOFF_S_MIN: Final = 0.005
UPDATE_BACKOFF_S_MAX: Final = 3.0
UPDATE_S_MAX: Final = 30.0
"""How long a document is read, changed and written again before its writer gives up."""
CACHE_ENTRIES_MAX: Final = 100_000
CACHE_BYTES_MAX: Final = 32 * MIB
CACHE_ENTRY_AGE_S_MAX: Final = 300.0
"""An older entry is read again when asked for, unless nobody can answer."""
COUNTER_VALUE_MAX: Final = 2**63 - 1
COUNTER_BLOCK_MAX: Final = 1_000_000
"""Numbers one process may take with one metadata write."""

# --- voters -----------------------------------------------------------------------------------
VOTER_REQUESTS_IN_FLIGHT_MAX: Final = 4
"""Requests a follower has not answered before further records gather."""
VOTER_REQUEST_RECORDS_MAX: Final = 1000
VOTER_REQUEST_BYTES_MAX: Final = 4 * MIB
"""A single larger record goes alone."""

# --- journal and ledgers ----------------------------------------------------------------------
JOURNAL_RECORD_BYTES_MAX: Final = 16 * MIB
JOURNAL_SEGMENT_BYTES: Final = 256 * MIB
"""A segment is sealed and the next begun once it is at least this long."""
JOURNAL_GROUP_BYTES_MAX: Final = 16 * MIB
"""How much one write and sync may carry."""
JOURNAL_WRITE_AHEAD_BYTES: Final = 1 * MIB
"""A group of this size is handed to the disk although the one before is not synced yet."""
JOURNAL_SCAN_BYTES: Final = 1 * MIB
"""How much recovery reads at a time, unless one record is larger."""
JOURNAL_OPEN_FILES_MAX: Final = 64
"""Sealed segments kept open for reading."""
STORE_PENDING_BYTES_HIGH: Final = 128 * MIB
"""Appended to a store and not durable: from here on connections are not read from."""
STORE_PENDING_BYTES_LOW: Final = 64 * MIB
"""From here on they are read from again."""
STORE_PENDING_BYTES_MAX: Final = 512 * MIB
"""Beyond it appends are refused: somebody does not hold back."""
JOURNAL_IDLE_MARK_S: Final = 0.05
"""After this long without appends the journal notes that all it holds is durable."""
LEDGER_ID_MAX: Final = 2**63 - 1
LEDGER_READ_GAP_BYTES_MAX: Final = 32 * KIB
"""Bytes of other ledgers that a read runs over rather than going to the disk twice."""
LEDGER_UPKEEP_SLICE: Final = 500
"""Ledgers or entries that housekeeping handles before it lets others have the loop."""
LEDGER_INDEX_SLICE_ENTRIES: Final = 8 * KIB
"""How many entries are put in an index file before others have the loop."""
LEDGER_UPKEEP_RETRY_S: Final = 1.0
"""After housekeeping found no room; each further time doubles the wait."""
LEDGER_UPKEEP_RETRY_S_MAX: Final = 60.0
LEDGER_DAMAGED_RETRY_S: Final = 3600.0
"""How long a segment that cannot be compacted because it is damaged is left alone."""
LEDGER_UPKEEP_SPARE_BYTES: Final = 16 * MIB
"""Room that housekeeping leaves to the appends: to run out of it ends the store."""
LEDGER_FACTS_SPARE_BYTES: Final = 1 * MIB
"""The same while it removes a segment, which gives room back."""
LEDGER_COMPACTION_SLICE_BYTES: Final = 256 * KIB
"""How much compaction copies with one write and sync."""
LEDGER_COMPACTION_BYTES_PER_S_MAX: Final = 16 * MIB
"""How fast compaction copies; the disk belongs to the appends."""

# --- BookKeeper's metadata --------------------------------------------------------------------
BOOKKEEPER_ENSEMBLE_MAX: Final = 1000
"""More bookies in one ensemble are damage, not a ledger."""
BOOKKEEPER_UNKNOWN_OUTCOME_S_MAX: Final = 30.0
"""How long a change of a ledger's metadata is asked after whose answer was lost."""
BOOKIE_QUARANTINE_S: Final = 60.0
"""How long a bookie that failed gets no new ledgers, if there are others."""
LEDGER_ID_TRIES_MAX: Final = 20
"""How often an id is drawn again because an answer was lost."""
LEDGER_ID_FLOOR_DRAWS_MAX: Final = 100_000
"""A floor further away is reached by ids of the long form instead of by drawing."""

# --- BookKeeper's bookies ---------------------------------------------------------------------
BOOKKEEPER_FRAME_BYTES_MAX: Final = FRAME_BYTES_MAX
"""The largest frame that a bookie takes, as Pulsar configures it."""
BOOKKEEPER_ANSWER_BYTES_MAX: Final = 16 * MIB
BOOKKEEPER_UNANSWERED_BYTES_MAX: Final = 2 * STORE_PENDING_BYTES_HIGH
"""What waits to be sent to one bookie that does not read before it counts as too slow."""
BOOKKEEPER_CONNECT_TIMEOUT_S: Final = 5.0
BOOKKEEPER_REQUEST_TIMEOUT_S: Final = 5.0
BOOKKEEPER_SPECULATIVE_READ_S: Final = 1.0
BOOKKEEPER_QUORUM_WAIT_S: Final = 20.0
BOOKKEEPER_EXPLICIT_LAC_S: Final = 1.0
BOOKKEEPER_RECONNECT_DELAY_S_MIN: Final = 0.1
BOOKKEEPER_RECONNECT_DELAY_S_MAX: Final = 5.0
BOOKKEEPER_BOOKIE_RETRY_S: Final = 1.0
"""How often a writer that lacks a bookie looks for one."""
BOOKKEEPER_LEAVE_GONE_S: Final = 5.0
"""Well below the 30 s after which BookKeeper's auto-recovery takes a ledger from its writer."""
BOOKKEEPER_LEAVING_MAX: Final = 64
"""Ledgers without appends that leave a bookie at the same time."""
BOOKKEEPER_LEAVING_POLL_S: Final = 0.02
BOOKKEEPER_READS_AT_FIRST: Final = 16
BOOKKEEPER_READS_AHEAD_MAX: Final = 256
"""Entries that one read asks for at the same time."""
BOOKKEEPER_WAVE_BYTES: Final = 8 * MIB
"""If they were more than this together, fewer are asked for the next time."""
BOOKKEEPER_IN_FLIGHT_BYTES_MAX: Final = 64 * MIB
"""What one read may be sent before it takes it, should every entry be as large as can be."""
BOOKKEEPER_RECOVERY_READS_MAX: Final = 32
"""Entries behind the last confirmed one that a recovery reads at the same time."""
BOOKKEEPER_METADATA_RETRY_S: Final = 0.2
BOOKKEEPER_METADATA_RETRY_S_MAX: Final = 2.0
"""How long to wait before a change of a ledger's metadata is tried again."""

# --- managed ledgers --------------------------------------------------------------------------
LEDGER_ENTRIES_MAX: Final = 50_000
LEDGER_BYTES_MAX: Final = 2048 * MIB
LEDGER_AGE_S_MAX: Final = 4 * 3600
MANAGED_LEDGERS_TEND_INTERVAL_S: Final = 120.0
"""How often those that nobody writes to are looked at: for their age, and for what may go."""
ENTRY_CACHE_BYTES_MAX: Final = 128 * MIB
CURSOR_FLUSH_INTERVAL_S: Final = 1.0
"""An acknowledgement without a receipt is durable within this time."""
CURSOR_RANGES_BYTES_MAX: Final = 256 * KIB
"""Individual acknowledgements kept in a cursor's node; with more it gets a ledger of its own."""
CURSOR_PROPERTIES_BYTES_MAX: Final = 448 * KIB
CURSOR_ENTRY_BYTES_MAX: Final = MESSAGE_BYTES_MAX
"""The largest state of a cursor: one entry of its ledger, which any ledger store takes."""
CURSOR_LEDGER_ENTRIES_MAX: Final = 50_000
CURSOR_LEDGER_BYTES_MAX: Final = 64 * MIB
"""A cursor goes on to another ledger, or back to its node, once it has one of these."""
CURSOR_LEDGER_SEARCH_ENTRIES: Final = 1024
CURSOR_LEDGER_SEARCH_STEP_ENTRIES: Final = 61
CURSOR_LEDGER_SEARCH_PROBES_MAX: Final = 1024
CURSOR_LEDGER_SEARCH_AT_ONCE: Final = 32
"""See `newest_entry`. The step is a prime: it meets all bookies that entries go round among."""
DOCUMENT_COMPRESSED_ABOVE_BYTES: Final = 16 * KIB
"""Documents of managed ledgers and cursors that are compressed, where that is asked for."""
DOCUMENT_BYTES_MAX: Final = 64 * MIB
"""The largest such document that is unpacked."""
ACK_SET_WORDS_MAX: Final = 8 * KIB
"""64-bit words of one batch's bitmap: more messages than fit the largest entry."""
CURSOR_CLAIM_TRIES_MAX: Final = 10
"""How often a new owner reads a cursor again because the old owner still writes to it."""
ENTRY_BYTES_MAX: Final = 8 * MIB + FRAME_PADDING_BYTES
"""The largest entry any setting of the wire can bring."""
APPENDS_WAITING_BYTES_MAX: Final = 256 * MIB
"""Appends of one managed ledger that wait for a new ledger; beyond it the store is too slow."""
LEDGER_READERS_PER_TOPIC_MAX: Final = 16
"""Closed ledgers of one managed ledger that are kept open for reading."""
LEDGER_IDS_RESERVED: Final = 100
"""Ledger ids one process takes with one metadata write."""
CONDITIONAL_WRITE_TRIES_MAX: Final = 20
"""How often a document shared by several writers is read and written again after a conflict."""
FENCED_PATIENCE_S: Final = 0.5
"""How long whoever finds a ledger taken waits for another owner to show up in the chain."""
FENCED_AGAIN_S: Final = 60.0
"""Who finds a second one taken within this time is not the owner any more."""

# --- server -----------------------------------------------------------------------------------
MESSAGE_BYTES_SETTING_MAX: Final = 8 * MIB
"""The most an operator may raise the limit of a message to."""
HEALTH_CHECK_S_MAX: Final = 5.0
"""A store that has not accepted a write within this time is reported as unhealthy."""
STOP_S_MAX: Final = 30.0
"""How long a clean stop may take before it is given up."""
WEB_STOP_S_MAX: Final = 2
"""How long web requests under way may take to finish at a stop."""
STORE_WATCH_INTERVAL_S: Final = 0.5
"""How soon a failed store ends the server; it acknowledges nothing meanwhile."""
THREAD_SWITCH_S: Final = 0.0005
"""A thread that comes back from a disk sync waits this long at most for the interpreter."""
LOOP_LAG_INTERVAL_S: Final = 0.25
PAUSE_WINDOW_S: Final = 30.0
"""The largest pauses are reported over the current and the previous window of this length."""

assert FRAME_BYTES_MAX < JOURNAL_RECORD_BYTES_MAX, "any accepted entry must fit one record"
assert MESSAGE_BYTES_SETTING_MAX + FRAME_PADDING_BYTES <= ENTRY_BYTES_MAX < JOURNAL_RECORD_BYTES_MAX
assert JOURNAL_RECORD_BYTES_MAX <= JOURNAL_GROUP_BYTES_MAX < JOURNAL_SEGMENT_BYTES
assert METADATA_VALUE_BYTES_MAX + METADATA_PATH_BYTES_MAX < METADATA_COMMAND_BYTES_MAX
assert STORE_PENDING_BYTES_LOW < STORE_PENDING_BYTES_HIGH < STORE_PENDING_BYTES_MAX
assert METADATA_COMMAND_BYTES_MAX < METADATA_IN_FLIGHT_BYTES_MAX
assert METADATA_COMMAND_BYTES_MAX + METADATA_COMMAND_OPERATIONS_MAX * KIB < METADATA_FRAME_BYTES_MAX
assert (
    METADATA_EVENTS_PER_FRAME_MAX * (METADATA_PATH_BYTES_MAX + 64)
    + METADATA_FRAME_BYTES_USUAL
    + METADATA_PAGE_NODES_MAX * (METADATA_PATH_BYTES_MAX + 256)
    + METADATA_PAGE_BYTES_MAX
    + METADATA_VALUE_BYTES_MAX
    < METADATA_FRAME_BYTES_MAX
), "events, answers gathered so far and one more page share a frame"
assert (
    METADATA_EXPORT_BLOCK_BYTES_USUAL
    + METADATA_VALUE_BYTES_MAX
    + METADATA_PATH_BYTES_MAX
    + METADATA_INDEXES_PER_NODE_MAX * (METADATA_INDEX_BYTES_MAX + 8)
    + METADATA_ACLS_PER_NODE_MAX * (METADATA_ACL_BYTES_MAX + 16)
    < METADATA_EXPORT_BLOCK_BYTES_MAX
), "a block that is almost full takes any record"
assert METADATA_UNANSWERED_WRITES_MAX < METADATA_UNREAD_ANSWERS_MAX
assert METADATA_COMMAND_BYTES_MAX < METADATA_UNANSWERED_WRITE_BYTES_MAX
assert METADATA_UNANSWERED_WRITE_BYTES_MAX < METADATA_QUEUED_BYTES_PER_CONNECTION_MAX
assert METADATA_COMMAND_BYTES_MAX + METADATA_COMMAND_OPERATIONS_MAX * KIB < JOURNAL_RECORD_BYTES_MAX
assert (
    METADATA_VALUE_BYTES_MAX
    + METADATA_INDEXES_PER_NODE_MAX * METADATA_INDEX_BYTES_MAX
    + 2 * METADATA_PATH_BYTES_MAX
    < METADATA_COMMAND_BYTES_MAX
), "any accepted operation must fit one command"
assert CURSOR_RANGES_BYTES_MAX + CURSOR_PROPERTIES_BYTES_MAX < METADATA_VALUE_BYTES_MAX, (
    "a cursor must fit its node"
)
assert CURSOR_RANGES_BYTES_MAX < CURSOR_ENTRY_BYTES_MAX
assert ACK_SET_WORDS_MAX * 10 < CURSOR_ENTRY_BYTES_MAX, "a word takes up to 10 bytes"
assert 0 < LEASE_DRIFT_SHARE_MAX < 1 / 6, "a session's loss is announced at 5/6 of its timeout"
assert UPDATE_BACKOFF_S_MIN < UPDATE_BACKOFF_S_MAX < UPDATE_S_MAX
