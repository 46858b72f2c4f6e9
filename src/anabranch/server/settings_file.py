"""The configuration file: how it is read, with every problem at once, and how a new one is written.

A key or value that is wrong is named with file, line, and what is allowed or was probably meant.
"""

import difflib
import re
import tomllib
from collections.abc import Sequence
from typing import Final

from anabranch.errors import ConfigError
from anabranch.server.settings import SETTINGS, Setting, SettingValue

_HEAD: Final = """\
# Settings of an Anabranch server: anabranch standalone --config THIS_FILE
#
# Every setting is here with its default. Take the # away from a line to change it. Flags and
# environment variables win over this file. `anabranch config check THIS_FILE` finds mistakes.
"""


def read_file(path: str) -> tuple[dict[str, SettingValue], list[str]]:
    """The values of a file that are right, and a line for each that is not.

    Raises:
        ConfigError: if it cannot be read, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"configuration file {path} cannot be read: {error.strerror or error}"
        ) from error
    except ValueError as error:  # both UnicodeDecodeError and TOMLDecodeError, which has the line
        raise ConfigError(f"configuration file {path} is not TOML: {error}") from error
    values: dict[str, SettingValue] = {}
    problems: list[tuple[int, str]] = []
    for key, value in document.items():
        setting = SETTINGS.get(key)
        line = _line_of(key, text)
        if setting is None:
            problems.append((line, f"{key} is no setting{closest(key, list(SETTINGS))}"))
            continue
        try:
            values[key] = setting.accept(value)
        except ValueError as error:
            problems.append((line, f"{key}: {error}"))
    return values, [f"{path}:{line}: {problem}" for line, problem in sorted(problems)]


def _line_of(key: str, text: str) -> int:
    pattern = re.compile(rf"""^\s*\[*\s*["']?{re.escape(key)}["']?\s*[=\].]""")
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.match(line):
            return number
    return 1


def closest(wrong: str, known: Sequence[str]) -> str:
    """What was probably meant, as the end of a sentence."""
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; settings are {', '.join(known)}"


def new_file() -> str:
    """A file with every setting and its default, all of them commented out."""
    return _HEAD + "".join(_entry(setting) for setting in SETTINGS.values())


def _entry(setting: Setting) -> str:
    return (
        f"\n# {setting.help}\n# Allowed: {setting.allowed}.\n# {setting.name} = {_toml(setting)}\n"
    )


def _toml(setting: Setting) -> str:
    default = setting.default
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, str):
        escaped = default.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"{default:g}" if isinstance(default, float) else str(default)
