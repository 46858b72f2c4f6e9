"""Topics as tables and streams of Spark: `format("anabranch")`, found without registration.

Spark looks for modules named `pyspark_...` with a `DefaultSource`. Nothing else of this project
imports this package; it knows the platform from outside, through the wire and the admin interface.

The source is loaded when somebody asks for it, so that what says which packages are missing, here
and in `environment`, can be asked without them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_anabranch.source import AnabranchSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_anabranch.environment import check_packages

    check_packages()
    from pyspark_anabranch.source import AnabranchSource

    return AnabranchSource
