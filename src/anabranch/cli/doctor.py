"""`anabranch doctor`: what this machine can run, what is missing, and how to mend it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.messages import Output
from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.cli.machine import Finding


def doctor(
    data: Annotated[
        str | None, typer.Option(help="Data folder to look at; else the one of the settings.")
    ] = None,
    config: Annotated[str | None, typer.Option(help="TOML file with settings.")] = None,
    output: Annotated[Output, typer.Option(help="How findings are printed.")] = Output.TEXT,
) -> None:
    """Look whether a server can run here; changes nothing.

    Exit code 0: it can; 1: it cannot.
    """
    from anabranch.cli.machine import State

    findings = _look(data, config)
    fine = all(finding.state is not State.BAD for finding in findings)
    if output is Output.JSON:
        import json

        print(json.dumps({"fine": fine, "findings": [each.as_json() for each in findings]}))
    else:
        _print(findings)
        verdict = "a server can run here" if fine else "a server cannot run here like this"
        print(verdict, file=sys.stderr)
    raise typer.Exit(0 if fine else 1)


def _look(data: str | None, config: str | None) -> "list[Finding]":
    from anabranch.cli import machine
    from anabranch.server.settings import Settings
    from anabranch.server.settings_sources import load_server_settings, load_settings

    findings = [machine.python(), machine.uvloop()]
    flags = {"data": data}
    try:
        load_server_settings(flags=flags, environment=os.environ, config_file=config)
        findings.append(machine.Finding("settings", machine.State.GOOD, "all allowed"))
    except ConfigError as error:
        findings += [
            machine.Finding("settings", machine.State.BAD, line, "correct it where it is named")
            for line in str(error).splitlines()
        ]
    try:
        # A file that cannot be read changes nothing about where the rest has to be looked for.
        settings = load_settings(flags=flags, environment=os.environ, config_file=config)
    except ConfigError:
        settings = Settings() if data is None else Settings(data=data)
    folder = Path(settings.data)
    findings += [
        machine.disk(folder),
        machine.identity(folder),
        machine.space(folder),
        machine.open_files(),
        *machine.ports(settings),
        machine.clock(folder),
        machine.java(),
        machine.peers(),
        machine.program("go", "builds Oxia for comparisons"),
    ]
    return findings


def _print(findings: "list[Finding]") -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.name:<{width}}  {finding.state.value}: {finding.detail}")
        if finding.fix:
            print(f"{'':<{width}}  -> {finding.fix}")
