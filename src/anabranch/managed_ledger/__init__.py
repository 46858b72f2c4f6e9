"""Chains of ledgers with cursors: what a topic is stored as."""
