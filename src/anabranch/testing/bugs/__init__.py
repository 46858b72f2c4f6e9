"""Planted bugs, one module per product folder; see `anabranch.testing.planted`."""
