"""The reference of options and columns, made from their definitions."""

from pyspark_anabranch.options import OPTIONS
from pyspark_anabranch.row_columns import COLUMNS_BY_NAME
from pyspark_anabranch.sink_rows import SINK_COLUMNS


def reference() -> str:
    """Return the page `docs/reference/spark-options.md`."""
    lines = [
        "# Options of the Spark data source",
        "",
        "Made from their definitions in `pyspark_anabranch`; do not edit. "
        "Names are the same in upper and lower case.",
        "",
        "| Option | For | Default | What it is |",
        "|---|---|---|---|",
        *(
            f"| `{option.name}` | {option.used_by} | {_shown(option.default)} | {option.words} |"
            for option in OPTIONS
        ),
        "",
        "## Columns that are read",
        "",
        "| Column | Type | What it is |",
        "|---|---|---|",
        *(
            f"| `{each.name}` | `{each.spark}` | {each.words} |"
            for each in COLUMNS_BY_NAME.values()
        ),
        "",
        "## Columns that can be written",
        "",
        "| Column | Type |",
        "|---|---|",
        *(f"| `{name}` | `{'` or `'.join(kinds)}` |" for name, kinds in SINK_COLUMNS.items()),
    ]
    return "\n".join(lines) + "\n"


def _shown(default: str) -> str:
    return f"`{default}`" if default else ""
