"""Sealed ledgers, read where they are stored and not through the broker.

Unlike the rest of the data source, this package knows ledger stores from inside.
"""
