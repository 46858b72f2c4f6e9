"""`anabranch config`: a new file with every setting, all mistakes at once, the reference page."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.errors import ConfigError
from anabranch.server.settings import SETTINGS, Settings
from anabranch.server.settings_sources import check_file, load_settings

ROOT = Path(__file__).parents[3]
MISTAKES = """\
prot = 6650
port = "6650"
web_port = 99999
log_level = "loud"

[network]
host = "x"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "anabranch.toml"


def test_new_file_has_every_setting_with_its_default(file: Path) -> None:
    assert CliRunner().invoke(app, ["config", "init", "--path", str(file)]).exit_code == 0
    assert load_settings(flags={}, environment={}, config_file=str(file)) == Settings()
    names = [f"# {name} = " for name in SETTINGS]
    opened = [
        line.removeprefix("# ") if line.startswith(tuple(names)) else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(opened))
    assert load_settings(flags={}, environment={}, config_file=str(file)) == Settings()
    assert [line.split(" = ")[0] for line in opened if not line.startswith("#") and line] == list(
        SETTINGS
    )


def test_file_that_is_there_is_kept_unless_forced(file: Path) -> None:
    file.write_text("port = 1\n")
    result = CliRunner().invoke(app, ["config", "init", "--path", str(file)])
    assert isinstance(result.exception, ConfigError)
    assert "exists already: --force replaces it" in str(result.exception)
    assert file.read_text() == "port = 1\n"
    assert (
        CliRunner().invoke(app, ["config", "init", "--path", str(file), "--force"]).exit_code == 0
    )
    assert "# port = 6650" in file.read_text()


def test_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["config", "init", "--path", str(tmp_path / "no/such.toml")])
    assert "no/such.toml cannot be written: No such file" in str(result.exception)


def test_all_mistakes_are_named_at_once_with_their_lines(file: Path) -> None:
    file.write_text(MISTAKES)
    assert check_file(str(file)) == [
        f"{file}:1: prot is no setting; did you mean port?",
        f"{file}:2: port: '6650' is not a whole number from 0 to 65535",
        f"{file}:3: web_port: 99999 is not a whole number from 0 to 65535",
        f"{file}:4: log_level: 'loud' is not debug or info or warning or error",
        f"{file}:6: network is no setting; settings are {', '.join(SETTINGS)}",
    ]
    with pytest.raises(ConfigError) as refused:
        load_settings(flags={}, environment={}, config_file=str(file))
    assert str(refused.value).splitlines() == check_file(str(file)), "the start says the same"
    assert file.read_text() == MISTAKES


def test_values_that_do_not_go_together_are_found(file: Path) -> None:
    file.write_text("port = 7000\nweb_port = 7000\n")
    (problem,) = check_file(str(file))
    assert "--port and --web-port are both 7000" in problem


def test_fine_file_is_fine(file: Path) -> None:
    file.write_text("port = 0\n")
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert (result.exit_code, result.stdout) == (0, f"{file} is fine\n")


def test_reference_page_is_what_the_command_prints() -> None:
    shown = CliRunner().invoke(app, ["config", "docs"]).stdout
    assert shown == (ROOT / "docs/reference/settings.md").read_text()
