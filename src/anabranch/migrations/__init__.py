"""Live operations: what a cluster stands on is replaced while it works."""
