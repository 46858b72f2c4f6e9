"""Our own standalone server as a child process, in the shape of the real ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from anabranch.testing.planted import child_command
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.limits import SERVER_READY_S_MAX
from anabranch.testing.servers.standalone import Place, Standalone, started

_MISHAP: Final = b"unexpected_error"
"""How the log calls a bug that a request has met."""


@contextmanager
def anabranch_standalone(
    *,
    folder: Path | None = None,
    command: Sequence[str] | None = None,
    options: Sequence[str] = (),
    ready_timeout_s: float = SERVER_READY_S_MAX,
) -> Iterator[Standalone]:
    """Run `anabranch standalone` for as long as the body runs.

    Args:
        folder: for data and log; kept. Without it, a temporary one that only leaves the log
            behind, and only after a failure.
        command: what stands before `standalone`; a profiler goes here. Without it the server has
            the planted bug of this process, if there is one.
        options: what stands after the folder and the ports.
        ready_timeout_s: how long until the health check must answer.

    Raises:
        ServerFailed: if it does not become ready, or a request has met a bug.
    """

    def build(place: Place) -> Standalone:
        full = [
            *(child_command("anabranch") if command is None else command),
            "standalone",
            *("--data", str(place.data)),
            *("--port", str(place.port)),
            *("--web-port", str(place.web_port)),
            *options,
        ]
        return Standalone("anabranch", full, place, ready_timeout_s=ready_timeout_s)

    with started("anabranch", build, folder) as server:
        yield server
        _refuse_mishaps(server.log)


def _refuse_mishaps(log: Path) -> None:
    if _MISHAP in log.read_bytes():
        raise ServerFailed(f"a request has met a bug: see {_MISHAP.decode()} in {log}")
