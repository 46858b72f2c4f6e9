"""`anabranch standalone`: one process with everything in it. Its flags come from the settings."""

import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anabranch.server.settings import SETTINGS, Setting

if TYPE_CHECKING:
    from anabranch.server.assembly import Standalone

_NOT_OURS = ("metadata_port",)
"""Settings that this command has no use for."""
_CONFIG_HELP = "TOML file with settings; flags and environment variables win over it."


def standalone(config: str | None, **flags: str | int | float | bool | None) -> None:
    """Start a server in the foreground; Ctrl-C stops it.

    Exit code 0: stopped; 1: a mistake in the program; 2: not started; 3: a store failed; 130: ended
    at once by a second Ctrl-C.
    """
    from anabranch.server.settings_sources import load_server_settings

    settings = load_server_settings(flags=flags, environment=os.environ, config_file=config)
    # Loaded only now, since a wrong setting should not have to wait for the whole server.
    from anabranch.server.process import run

    raise typer.Exit(run(settings, announce=_announce))


def _option(setting: Setting) -> inspect.Parameter:
    names = [setting.flag]
    if setting.kind is bool:
        names = [f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"]
    # No default here: an absent flag must stay distinguishable, it loses to file and environment.
    choices = list(setting.choices)
    option = typer.Option(None, *names, help=setting_help(setting), autocompletion=lambda: choices)
    kind = setting.kind | None
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind
    )


def setting_help(setting: Setting) -> str:
    """What a flag says of its setting: meaning, allowed values, default."""
    default = str(setting.default).lower() if setting.kind is bool else str(setting.default)
    return f"{setting.help} ({setting.allowed}" + (f"; default: {default})" if default else ")")


def describe_flags(command: Any, not_ours: Collection[str]) -> None:
    """Give a command one option per setting, so that there is one definition of each."""
    config = inspect.Parameter(
        "config",
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(None, "--config", help=_CONFIG_HELP),
        annotation=str | None,
    )
    ours = [setting for setting in SETTINGS.values() if setting.name not in not_ours]
    parameters = [config, *map(_option, ours)]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}


describe_flags(standalone, _NOT_OURS)


def _announce(server: "Standalone") -> None:
    command = _own_command()
    url = (
        ""
        if server.reachable_url == "pulsar://127.0.0.1:6650"
        else f" --url {server.reachable_url}"
    )
    print(f"anabranch is ready: {server.reachable_url}  web {server.reachable_web_url}")
    print(f"data is kept in {server.data_place}; Ctrl-C stops the server")
    print("try it from another terminal:")
    print(f"  {command} produce my-topic -m hello{url}")
    print(f"  {command} consume my-topic -s my-subscription --position earliest{url}", flush=True)


def _own_command() -> str:
    """The shortest words that start this very command from the current folder."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m anabranch"
    found = shutil.which(started.name)
    if found is not None and Path(found).resolve() == started.resolve():
        return started.name
    try:
        return shlex.quote(str(started.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(started))
