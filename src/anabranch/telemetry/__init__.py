"""Logs, metrics, loop lag."""

from anabranch.telemetry.logs import Logger, get_logger

__all__ = ["Logger", "get_logger"]
