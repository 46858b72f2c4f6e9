"""The file of credentials: what it may say, and that nothing in it is ever shown."""

import os
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import AnabranchError, ConfigError, FormatError
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials, parse_credentials
from anabranch.metadata.factory import open_store
from anabranch.runtime.network import Tls
from anabranch.runtime.real import real_runtime
from anabranch.server.credentials_file import load_credentials

HEAD = 'format = "anabranch.metadata-credentials"\nversion = 1\n'
SECRET = "hush-hush"
WHOLE = f"""{HEAD}
[[zookeeper.identity]]
scheme = "sasl"
user = "bob"
password = "{SECRET}: = and more"

[[zookeeper.identity]]
scheme = "digest"
user = "bob"
password = "{SECRET}"

[zookeeper.tls]
ca = "ca.pem"
certificate = "/etc/us.pem"
key = "us.key"

[oxia]
token = "{SECRET}"

[oxia.tls]
"""


def test_everything_it_may_say() -> None:
    found = parse_credentials("etc/secrets.toml", WHOLE.encode())
    assert found == Credentials(
        (("sasl", f"bob:{SECRET}: = and more".encode()), ("digest", f"bob:{SECRET}".encode())),
        Tls("etc/ca.pem", "/etc/us.pem", "etc/us.key"),
        SECRET,
        Tls(),
    )
    assert parse_credentials("f", HEAD.encode()) == NO_CREDENTIALS


@pytest.mark.goal("core.M11", part="tools", broken_by="credentials_are_shown")
def test_secrets_are_not_in_its_text() -> None:
    assert SECRET not in repr(parse_credentials("f", WHOLE.encode()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + f'pasword = "{SECRET}"', "unknown key pasword: known are format"),
        (HEAD + f'[zookeeper]\npassword = "{SECRET}"', r"unknown key zookeeper\.password"),
        (HEAD + f'[oxia]\ntokens = "{SECRET}"', r"unknown key oxia\.tokens: known are token, tls"),
        (HEAD + '[oxia.tls]\nkey = "k"', r"unknown key oxia\.tls\.key"),
        (HEAD + f"[oxia]\ntoken = {SECRET}", r"not TOML \(at line 4, column 9\)"),
        (HEAD + f'[oxia]\ntoken = ["{SECRET}"]', r"oxia\.token is missing, empty, or not a text"),
        (HEAD + f'[oxia]\ntoken = "{SECRET}\\n"', r"oxia\.token has characters that no token has"),
        (HEAD + f'[oxia]\ntoken = "{SECRET}ü"', r"oxia\.token has characters that no token has"),
        (HEAD + f'oxia = "{SECRET}"', r"write \[oxia\]"),
        (HEAD + f'[zookeeper.identity]\nuser = "{SECRET}"', r"write \[\[zookeeper\.identity\]\]"),
        (
            HEAD + f'[[zookeeper.identity]]\nscheme="{SECRET}"\nuser = "b"\npassword = "x"',
            r"zookeeper\.identity\.scheme is one of sasl, digest",
        ),
        (
            HEAD + f'[[zookeeper.identity]]\nscheme="sasl"\nuser = "b:{SECRET}"\npassword = "x"',
            "has a colon",
        ),
        (
            HEAD + f'[[zookeeper.identity]]\nscheme="sasl"\npassword = "{SECRET}"',
            r"identity\.user is missing",
        ),
        (HEAD + f'x = "{SECRET}' + "x" * limits.CREDENTIALS_FILE_BYTES_MAX + '"', "more than"),
    ],
)
def test_what_is_wrong_is_named_and_no_value_is(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        parse_credentials("secrets.toml", text.encode())
    assert str(refused.value).startswith("secrets.toml")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no credentials"),
        ('format = "other"\nversion = 1', "holds no credentials"),
        (HEAD.replace("version = 1", "version = 2"), "version = 1 is"),
        (HEAD.replace("version = 1", "version = true"), "version = 1 is"),
    ],
)
def test_files_of_others_are_refused(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse_credentials("secrets.toml", text.encode())


def test_no_text_at_all() -> None:
    with pytest.raises(ConfigError, match="no text"):
        parse_credentials("f", b"\xff")


def test_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text(WHOLE)
    for mode, warnings in ((0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)):
        os.chmod(file, mode)
        heard: list[str] = []
        assert load_credentials(str(file), heard.append).oxia_token == SECRET
        assert len(heard) == warnings
        assert all("chmod 600" in line and SECRET not in line for line in heard)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read: No such file"):
        load_credentials(f"{tmp_path}/missing.toml", print)
    assert load_credentials("", print) == NO_CREDENTIALS


async def test_certificates_that_are_missing_or_named_twice(tmp_path: Path) -> None:
    missing = Credentials(oxia_tls=Tls(f"{tmp_path}/missing.pem"))
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        await open_store("oxia://127.0.0.1:1", real_runtime(), credentials=missing)
    twice = Credentials(zookeeper_tls=Tls())
    with pytest.raises(AnabranchError, match="leave one out"):
        await open_store("zk:127.0.0.1:1?tls.ca=x.pem", real_runtime(), credentials=twice)
