"""The page `docs/reference/settings.md`, printed from the definition of the settings."""

from typing import Final

from anabranch.server.settings import SETTINGS, Setting

_HEAD: Final = """\
# Settings

A setting is given as a flag of `anabranch standalone`, as an environment variable, or as a key of a
TOML file named by `--config` (or `ANABRANCH_CONFIG`). Flags win over the environment, the
environment over the file, the file over the default. A key that does not exist or a value that is
not allowed stops the start; the message names it, where it came from and what is allowed.

`anabranch config init` writes a file with every setting and its default, `anabranch config check`
finds all mistakes of one at once. This page is printed by `anabranch config docs`.

```toml
# anabranch.toml
data = "/var/lib/anabranch"
host = "0.0.0.0"
advertised_address = "streams.example.org"
log_format = "json"
```
"""


def render() -> str:
    """Return the whole page."""
    rows = [_row(setting) for setting in SETTINGS.values()]
    table = ["| Key | Flag | Variable | Allowed | Default | Meaning |", "|---|---|---|---|---|---|"]
    return _HEAD + "\n" + "\n".join(table + rows) + "\n"


def _row(setting: Setting) -> str:
    default = setting.default
    if isinstance(default, bool):
        shown = "true" if default else "false"
    else:
        shown = f"{default:g}" if isinstance(default, float) else str(default)
    flag = setting.flag
    if setting.kind is bool:
        flag += f"`, `--no-{setting.flag.removeprefix('--')}"
    return (
        f"| `{setting.name}` | `{flag}` | `{setting.variable}` | {setting.allowed} "
        f"| {f'`{shown}`' if shown else ''} | {setting.help} |"
    )
