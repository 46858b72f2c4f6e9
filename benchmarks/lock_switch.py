"""How long one lock takes to change hands after its holder was killed with SIGKILL.

A server with an embedded store in this process, holders in processes of their own. The store keeps
a dead holder's session for its timeout, counted from when it last heard of it; so the figure lies
between two thirds of the timeout and the timeout, plus what the switch itself costs.
"""

import asyncio
import os
import statistics
import tempfile

from anabranch.testing.lock_switch import measure_switches

TIMEOUT_S = 2.0
SWITCHES = 10


def run() -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        taken_s = asyncio.run(
            measure_switches(f"{folder}/store", timeout_s=TIMEOUT_S, switches=SWITCHES)
        )
    print(f"{'one lock':24} {'timeout s':>10} {'median s':>10} {'min-max s':>14} {'load':>6}")
    print(
        f"{f'{SWITCHES} x kill -9':24} {TIMEOUT_S:10.1f} {statistics.median(taken_s):10.2f} "
        f"{f'{min(taken_s):.2f}-{max(taken_s):.2f}':>14} {os.getloadavg()[0]:6.1f}"
    )
