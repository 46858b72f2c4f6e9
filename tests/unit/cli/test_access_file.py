"""The file of `--access`: what it names is found from wherever a command is given."""

from pathlib import Path

import pytest

from anabranch.cli.access import load_access
from anabranch.client import Tls, Token
from anabranch.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is; the command is given elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder


def test_names_are_relative_to_the_folder_of_the_file(folder: Path) -> None:
    (folder / "mine.token").write_text("abc\n")
    (folder / "access.toml").write_text(
        'token_file = "mine.token"\ntls_trust = "ca.pem"\ntls_certificate = "sub/me.pem"\n'
        'tls_key = "/etc/me.key"\n'
    )
    for name in (str(folder / "access.toml"), "../kept/access.toml"):
        access = load_access(name)
        assert isinstance(access.credentials, Token)
        assert access.credentials.header() == "Bearer abc"
        own = Path(name).parent
        assert access.tls == Tls(str(own / "ca.pem"), str(own / "sub/me.pem"), "/etc/me.key")


def test_file_that_is_not_there_is_named_with_its_folder(folder: Path) -> None:
    (folder / "access.toml").write_text('token_file = "mine.token"\n')
    (folder.parent / "elsewhere" / "mine.token").write_text("of somebody else")
    with pytest.raises(ConfigError, match=f"{folder}/mine.token cannot be read: No such file"):
        load_access(str(folder / "access.toml"))
