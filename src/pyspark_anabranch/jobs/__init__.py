"""Bulk jobs over the platform's own data, all with one contract: see `contract`.

Unlike the data source beside it, this package knows the platform from inside: its stores, its
histories and their rules.
"""
