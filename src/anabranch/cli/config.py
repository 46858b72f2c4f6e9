"""`anabranch config`: write a configuration file, check one, print the reference."""

from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import ConfigError

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Write and check configuration files."
)


@app.command("init")
def init(
    path: Annotated[Path, typer.Option(help="Where to write it.")] = Path("anabranch.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a file with every setting and its default."""
    from anabranch.server.settings_file import new_file

    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(new_file())
    except FileExistsError:
        raise ConfigError(f"{path} exists already: --force replaces it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"wrote {path}; start with: anabranch standalone --config {path}")


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="The file to check.")],
) -> None:
    """Name every mistake of a file, and of the files of keys that it names; changes nothing.

    It reads them as whoever asks, from the folder in which it was asked.

    Exit code 0: there is none; 2: there is one, or no such file.
    """
    from anabranch.server.settings_sources import check_file

    problems = check_file(str(file))
    if problems:
        raise ConfigError("\n".join(problems))
    print(f"{file} is fine")


@app.command("docs")
def docs() -> None:
    """Print the reference of all settings as Markdown."""
    from anabranch.server.settings_reference import render

    print(render(), end="")
