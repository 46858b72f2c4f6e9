"""Runs the `anabranch` command under the profiler: `profiled.py STATS-FILE ARGUMENT...`.

The profile is written when the command ends, also when it ends by an exception.
"""

import cProfile
import runpy
import sys
import time


def main() -> None:
    stats, *arguments = sys.argv[1:]
    sys.argv = ["anabranch", *arguments]
    # CPU time of this thread: waiting for work, and for other processes' turns, is not cost.
    profile = cProfile.Profile(time.thread_time)
    try:
        profile.runcall(runpy.run_module, "anabranch", run_name="__main__", alter_sys=True)
    finally:
        profile.dump_stats(stats)


if __name__ == "__main__":
    main()
