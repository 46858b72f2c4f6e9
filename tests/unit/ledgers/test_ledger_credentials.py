"""The file with the password of ledgers and the credentials for bookies."""

from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, ConfigError, FormatError
from anabranch.ledgers.credentials import LedgerCredentials, parse_ledger_credentials
from anabranch.runtime.network import Tls
from anabranch.server.credentials_file import load_ledger_credentials

HEAD = 'format = "anabranch.ledgers-credentials"\nversion = 1\n'
FULL = (
    HEAD
    + """
[bookkeeper]
password = "sesame"
[bookkeeper.auth]
plugin = "org.example.Plugin"
token = "token-of-ours"
[bookkeeper.tls]
ca = "ca.pem"
certificate = "/etc/us.pem"
key = "us.key"
"""
)


SASL = '[bookkeeper.sasl]\nuser = "us"\npassword = "open"\n'


def test_everything_is_read() -> None:
    known = parse_ledger_credentials("c.toml", (HEAD + SASL).encode())
    assert known == LedgerCredentials(sasl=("us", "open"))
    assert "open" not in repr(known)
    assert parse_ledger_credentials("conf/c.toml", FULL.encode()) == LedgerCredentials(
        b"sesame",
        ("org.example.Plugin", b"token-of-ours"),
        Tls("conf/ca.pem", "/etc/us.pem", "conf/us.key"),
    )
    assert parse_ledger_credentials("c.toml", HEAD.encode()) == LedgerCredentials()


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("", FormatError, "holds no credentials"),
        (HEAD.replace("ledgers", "metadata"), FormatError, "anabranch.ledgers-credentials"),
        (HEAD.replace("1", "2"), FormatError, "version = 1 is"),
        (HEAD + "[zookeeper]\n", ConfigError, "unknown key zookeeper: known are"),
        (HEAD + "[bookkeeper]\npass = 'x'\n", ConfigError, "unknown key bookkeeper.pass"),
        (HEAD + "bookkeeper = 'x'\n", ConfigError, "write \\[bookkeeper\\]"),
        (HEAD + "[bookkeeper]\npassword = ''\n", ConfigError, "bookkeeper.password is missing"),
        (HEAD + "[bookkeeper.auth]\nplugin = 'x'\n", ConfigError, "bookkeeper.auth.token is"),
        (HEAD + "[bookkeeper.sasl]\nuser = 'x'\n", ConfigError, "bookkeeper.sasl.password is"),
        (FULL + SASL, ConfigError, "bookkeeper.auth and bookkeeper.sasl"),
        (HEAD + "[bookkeeper.tls]\nca = 1\n", ConfigError, "bookkeeper.tls.ca is missing"),
    ],
)
def test_what_is_wrong_is_named_without_a_value(
    content: str, error: type[AnabranchError], said: str
) -> None:
    with pytest.raises(error, match=said):
        parse_ledger_credentials("c.toml", content.encode())


def test_a_file_that_others_can_read_is_used_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(FULL)
    file.chmod(0o644)
    warnings: list[str] = []
    assert load_ledger_credentials(str(file), warnings.append).password == b"sesame"
    assert len(warnings) == 1
    file.chmod(0o600)
    load_ledger_credentials(str(file), warnings.append)
    assert len(warnings) == 1
    assert load_ledger_credentials("", warnings.append) == LedgerCredentials()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_ledger_credentials(str(tmp_path / "none.toml"), warnings.append)
