"""Ledger stores: the contract and the stores behind it."""
