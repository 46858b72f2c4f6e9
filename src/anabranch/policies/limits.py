"""Bounds of policies that several folders use."""

from typing import Final

POLICY_CHECK_INTERVAL_S: Final = 60.0
"""Between two looks at what only time brings: expiry, quotas, topics that nobody uses."""
