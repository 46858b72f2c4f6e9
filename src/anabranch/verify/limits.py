"""Every bound of the checks and their reports, with its unit in the name."""

from typing import Final

from anabranch.limits import MIB

HISTORY_LINE_BYTES_MAX: Final = 1 * MIB
FINDINGS_PER_RULE_MAX: Final = 100
"""Violations shown with their evidence; all of them are counted."""
RECORDS_PER_FINDING_MAX: Final = 50
SEND_ATTEMPTS_MAX: Final = 255
"""Attempts of one sequence number that a history may hold."""
SEND_BLOCKS_MAX: Final = 900
"""Blocks of 4,096 sends that a check keeps in memory, about 115 KiB each; more wait on disk."""
CHECK_MAP_ENTRIES_MAX: Final = 65_536
"""Entries of one map that a check keeps in memory; more wait on disk."""
UNCONFIRMED_DELIVERIES_MAX: Final = 16_384
"""Deliveries of one subscription whose acknowledgement may still be told from any other."""
CURSOR_SNAPSHOTS_MAX: Final = 8_192
"""Earlier positions of one cursor that a check compares with."""
REPORT_SPANS_MAX: Final = 600
"""Points of a plot; a longer run gets wider ones."""
REPORT_EVENTS_MAX: Final = 1_000
"""Of faults, and of other events, that a report shows; of more it shows an even part."""
REPORT_GAPS_MAX: Final = 10
LATE_SEND_S_MAX: Final = 1.0
"""How much later than its delivery the record of a send may be stamped."""
ACK_LAG_S_MAX: Final = 60.0
"""Longest time before a crash whose confirmed acknowledgements a server may be allowed to lose."""
STUCK_S_MAX: Final = 5.0
"""Longest wait for a receipt while nothing is being replaced."""
STUCK_IN_WINDOW_S_MAX: Final = 30.0
"""Longest wait for a receipt that touches a declared window of trouble."""
