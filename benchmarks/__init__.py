"""Figures taken beside the peers, on the same machine in the same run: `python -m benchmarks`.

Only measuring lives here; nothing in it passes or fails, and no test times anything.
"""
