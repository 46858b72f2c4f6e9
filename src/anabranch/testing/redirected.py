"""Starts a program whose connections to some ports of loopback lead to others.

    python -m anabranch.testing.redirected 3181=15001,3182=15002 -- anabranch broker ...

Bookies tell everybody one address. This way one broker reaches them by relays of its own, which can
be cut for it alone.
"""

import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.runtime.real import RealNetwork


def redirect_command(ports: Mapping[int, int], command: Sequence[str]) -> list[str]:
    """The arguments of this module that start an `anabranch` command with other ports."""
    pairs = ",".join(f"{port}={other}" for port, other in ports.items())
    return [pairs, "--", *command]


def redirect(ports: Mapping[int, int]) -> None:
    """From now on, lead connections of this process to those ports of loopback elsewhere."""
    connect = RealNetwork.connect

    async def elsewhere(self: RealNetwork, host: str, port: int, *args: Any, **more: Any) -> Any:
        return await connect(self, host, ports.get(port, port), *args, **more)

    RealNetwork.connect = elsewhere  # type: ignore[method-assign]


def main(arguments: list[str]) -> int:
    """Start `anabranch` with the ports of the first argument."""
    if len(arguments) < 3 or arguments[1:3] != ["--", "anabranch"]:
        print("usage: redirected PORT=PORT,... -- anabranch ...", file=sys.stderr)
        return 2
    pairs = (pair.partition("=") for pair in arguments[0].split(","))
    redirect({int(port): int(other) for port, _, other in pairs})
    sys.argv[1:] = arguments[3:]
    runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
