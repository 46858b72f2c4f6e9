"""Policies as a broker lives by them: read from the store, watched, and brought to its topics."""

from anabranch.broker.policies.source import PolicySource

__all__ = ["PolicySource"]
