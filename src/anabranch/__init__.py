"""Anabranch: a streaming platform in which everything under a running topic can be replaced."""

from importlib.metadata import version as _distribution_version

__version__ = _distribution_version("anabranch")

__all__ = ["__version__"]
