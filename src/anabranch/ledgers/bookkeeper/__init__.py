"""Ledgers on Apache BookKeeper: its formats, its metadata and a client of its bookies.

Formats and decisions are pure; what waits for a bookie or for the metadata store is a thin shell
around them.
"""
