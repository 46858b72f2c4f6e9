"""Bounds of the store on ZooKeeper that nobody else needs. Constants only."""

from typing import Final

WATCHED_RESTORE_NODES_MAX: Final = 4096
"""A restore of more nodes goes on without a watch if nobody reads along."""
PROBED_RIGHTS_MAX: Final = 10_000
"""Access rights of which it is remembered whether the servers take them."""
RESTORE_OPERATIONS_FIRST: Final = 100
"""Of the first request of a restore; later ones are as long as the server answers fast."""
RESTORE_OPERATIONS_MIN: Final = 20
"""Requests of a restore do not get shorter than this."""
RESTORES_UNDER_WAY_FIRST: Final = 2
"""Requests of a restore that are unanswered before it is known that the server is fast."""
RESTORE_ANSWER_S_USUAL: Final = 0.25
"""Requests of a restore get shorter, and fewer, when their answers take longer than this."""
READERS_MAX: Final = 12
"""Connections for access rights of whole trees. A server takes 60 from one address, as a rule."""
READERS_OPEN_S_MAX: Final = 3.0
"""One that is not open then is done without."""
