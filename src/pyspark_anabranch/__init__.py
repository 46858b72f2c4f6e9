"""Topics as tables and streams of Spark: `format("anabranch")`, found without registration.

Spark looks for modules named `pyspark_...` with a `DefaultSource`. Nothing else of this project
imports this package; it knows the platform from outside, through the wire and the admin interface.
"""

from pyspark_anabranch.source import AnabranchSource as DefaultSource

__all__ = ["DefaultSource"]
