"""Voters of a replicated log as simulated processes, and the witness that watches them."""
