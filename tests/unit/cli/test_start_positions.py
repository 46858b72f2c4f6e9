"""What can be written after `--from`."""

import pytest

from anabranch.cli.start_position import FromEnd, FromMessage, FromTime, StartPosition, parse_start
from anabranch.errors import ConfigError

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", FromEnd(True)),
        ("latest", FromEnd(False)),
        ("12:0", FromMessage(12, 0, -1)),
        ("12:7:3", FromMessage(12, 7, 3)),
        ("90s", FromTime(NOW_MS - 90_000)),
        ("15m ago", FromTime(NOW_MS - 900_000)),
        ("2h", FromTime(NOW_MS - 7_200_000)),
        ("1d", FromTime(NOW_MS - 86_400_000)),
        ("999999999d", FromTime(0)),
        ("1970-01-01T00:00:01.5+00:00", FromTime(1500)),
        ("1970-01-01T02:00:01+02:00", FromTime(1000)),
        ("2026-05-01T12:00:00Z", FromTime(1_777_636_800_000)),
    ],
)
def test_every_way_to_say_where(text: str, start: StartPosition) -> None:
    assert parse_start(text, now_ms=NOW_MS) == start


@pytest.mark.parametrize(
    "text",
    ["", "Earliest", "12", "12:", "-1:-1", "1:2:3:4", "5", "5x", "m", "1969-12-31T00:00:00Z",
     "soon", "9" * 19 + ":0", "2026-13-01", "0001-01-01T00:00:00+00:00"],
)  # fmt: skip
def test_everything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="is no place to begin: use earliest, latest"):
        parse_start(text, now_ms=NOW_MS)
