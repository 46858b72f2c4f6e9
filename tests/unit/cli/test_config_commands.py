"""`anabranch config`: a new file with every setting, all mistakes at once, the reference page."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.errors import ConfigError
from anabranch.server.settings import SETTINGS, Settings
from anabranch.server.settings_sources import check_file, load_server_settings, load_settings

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


def test_files_that_are_named_and_cannot_be_read_are_all_told(file: Path, tmp_path: Path) -> None:
    gone = {
        "token_secret_key": "credentials file",
        "basic_users": "credentials file",
        "metadata_credentials": "credentials file",
        "ledgers_credentials": "credentials file",
        "tls_certificate": "TLS file",
        "tls_key": "TLS file",
        "tls_trust": "TLS file",
    }
    named = "".join(f'{name} = "{tmp_path}/{name}"\n' for name in gone)
    file.write_text(f'authentication = "token,basic,tls"\n{named}')
    told = {
        f"--{name.replace('_', '-')}: {kind} {tmp_path}/{name} cannot be read: "
        "No such file or directory"
        for name, kind in gone.items()
    }
    assert set(check_file(str(file))) == {f"{file}: {line}" for line in told}
    with pytest.raises(ConfigError) as refused:
        load_server_settings(flags={}, environment={}, config_file=str(file))
    assert set(str(refused.value).splitlines()) == told, "the start says the same"
    file.write_text(file.read_text() + "prot = 1\n")
    with pytest.raises(ConfigError) as refused:
        load_server_settings(flags={}, environment={}, config_file=str(file))
    said = str(refused.value).splitlines()
    assert said == check_file(str(file))
    assert len(said) == len(gone) + 1, "beside mistakes of the file itself"


def test_files_that_are_named_by_files_of_credentials_are_looked_for(
    file: Path, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.toml"
    secrets.write_text(
        'format = "anabranch.metadata-credentials"\nversion = 1\n'
        '[zookeeper.tls]\nca = "ca.pem"\n[oxia.tls]\nca = "other.pem"\n'
    )
    file.write_text(f'metadata_url = "zk:127.0.0.1:1"\nmetadata_credentials = "{secrets}"\n')
    (problem,) = check_file(str(file))
    assert problem.startswith(
        f"{file}: --metadata-credentials: TLS file {tmp_path}/ca.pem cannot be read"
    ), "and nothing of the store that is not used"


def test_files_that_hold_something_else_are_told(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "short"
    other.write_text("short")
    file.write_text(
        f'authentication = "token"\ntoken_secret_key = "{other}"\nledgers_credentials = "{other}"\n'
        f'tls_certificate = "{other}"\ntls_key = "{other}"\nbasic_users = "/not/asked/for"\n'
    )
    key, credentials, tls = check_file(str(file))
    assert "--token-secret-key: the secret of tokens has 5 bytes" in key
    assert "--ledgers-credentials: " in credentials
    assert "--tls-certificate: TLS cannot be set up" in tls


def test_fine_file_is_fine(file: Path) -> None:
    file.write_text("port = 0\n")
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert (result.exit_code, result.stdout) == (0, f"{file} is fine\n")


def test_reference_page_is_what_the_command_prints() -> None:
    shown = CliRunner().invoke(app, ["config", "docs"]).stdout
    assert shown == (ROOT / "docs/reference/settings.md").read_text()
