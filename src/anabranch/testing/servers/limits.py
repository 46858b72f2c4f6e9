"""Every bound of the servers that tests start, with its unit in the name."""

from typing import Final

JAVA_MAJOR_MIN: Final = 17
FETCH_S_MAX: Final = 1800
SERVER_READY_S_MAX: Final = 120
SERVER_STOP_S_MAX: Final = 20
"""How long a server may take to end by itself before it is ended by force."""
SERVER_PROBE_S_MAX: Final = 15
SERVER_POLL_INTERVAL_S: Final = 0.02
TEST_PORT_MIN: Final = 15_000
TEST_PORT_MAX: Final = 29_999
"""Below 32,768, where Linux begins to take ports for outgoing connections."""
