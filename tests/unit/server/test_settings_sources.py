"""Where settings come from, which source wins, and how wrong ones are refused."""

from dataclasses import fields
from pathlib import Path

import pytest

from anabranch.errors import ConfigError
from anabranch.server import settings_reference
from anabranch.server.settings import SETTINGS, Settings
from anabranch.server.settings_sources import load_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "anabranch.toml"
        path.write_text(text)
        return str(path)

    return write


def load(flags=None, environment=None, config_file=None) -> Settings:
    return load_settings(flags=flags or {}, environment=environment or {}, config_file=config_file)


def refusal(**sources) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**sources)
    return str(caught.value)


@pytest.mark.goal("core.B27", broken_by="environment_wins_over_flags")
def test_flag_wins_over_environment_over_file_over_default(config):
    file = config("port = 1111\nweb_port = 2222\ncluster = 'blue'\n")
    environment = {"ANABRANCH_PORT": "3333", "ANABRANCH_WEB_PORT": "4444", "HOME": "/"}
    settings = load({"port": 5555, "web_port": None}, environment, file)
    assert settings.port == 5555
    assert settings.web_port == 4444
    assert settings.cluster == "blue"
    assert settings.host == "127.0.0.1"


def test_file_can_be_named_by_the_environment(config):
    assert load(environment={"ANABRANCH_CONFIG": config("port = 1")}).port == 1


def test_flag_names_another_file_than_the_environment(config):
    environment = {"ANABRANCH_CONFIG": "/does/not/exist"}
    assert load(environment=environment, config_file=config("port = 1")).port == 1


@pytest.mark.goal("core.B27", broken_by="unknown_keys_are_ignored")
def test_unknown_key_in_file_is_named_with_its_line_and_the_closest_key(config):
    text = refusal(config_file=config("# settings\n\nweb-port = 5\n"))
    assert "anabranch.toml:3: web-port is no setting; did you mean web_port?" in text


def test_unknown_key_without_a_close_one_lists_all(config):
    text = refusal(config_file=config("zzz = 5\n"))
    assert all(name in text for name in SETTINGS)


def test_table_in_file_is_refused_with_its_line(config):
    assert "anabranch.toml:2: broker is no setting" in refusal(
        config_file=config("port = 1\n[broker]\nport = 2\n")
    )


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("port = 70000", "70000 is not a whole number from 0 to 65535"),
        ("port = '6650'", "'6650' is not a whole number"),
        ("port = true", "True is not a whole number"),
        ("port = 1.5", "1.5 is not a whole number"),
        ("log_level = 'loud'", "'loud' is not debug or info or warning or error"),
        ("auto_create_topics = 1", "1 is not true or false"),
        ("keep_alive_interval_s = nan", "nan is not a number from 1 to 3600"),
        ("cluster = 'a/b'", "'a/b' may have letters"),
        ("host = 'tcp://here'", "is not a host name"),
        ("data = ' '", "is empty"),
        ("metadata_url = 'etcd:here'", "'etcd:here' is not memory:, embedded: or embedded:FOLDER"),
        ("ledgers_url = 'hdfs:here'", "'hdfs:here' is wrong: unknown ledger store"),
        ("ledgers_url = 'bookkeeper:?ack=0'", "ack in 'bookkeeper:?ack=0' is a number of bookies"),
    ],
)
def test_wrong_value_in_file_is_named_with_what_is_allowed(config, line, allowed):
    text = refusal(config_file=config(line + "\n"))
    assert f"anabranch.toml:1: {line.split()[0]}: " in text
    assert allowed in text


def test_file_that_is_not_toml_or_not_there_is_named(config, tmp_path):
    assert "is not TOML" in refusal(config_file=config("port 5"))
    missing = str(tmp_path / "missing.toml")
    assert f"{missing} cannot be read: No such file" in refusal(config_file=missing)


@pytest.mark.goal("core.B27", broken_by="unknown_variables_are_ignored")
def test_wrong_variable_is_named():
    assert refusal(environment={"ANABRANCH_WEBPORT": "1"}) == (
        "environment variable ANABRANCH_WEBPORT is no setting; did you mean ANABRANCH_WEB_PORT?"
    )
    assert refusal(environment={"ANABRANCH_PORT": "x"}) == (
        "environment variable ANABRANCH_PORT: 'x' is not a whole number from 0 to 65535"
    )
    assert "'maybe' is not true or false" in refusal(
        environment={"ANABRANCH_AUTO_CREATE_TOPICS": "maybe"}
    )


def test_variables_of_other_tools_are_left_alone():
    assert load(environment={"ANABRANCH_CACHE": "x", "PORT": "y"}) == Settings()


def test_wrong_flag_value_is_named():
    assert refusal(flags={"port": -1}).startswith("--port: -1 is not")


def test_values_are_read_from_text():
    environment = {
        "ANABRANCH_AUTO_CREATE_TOPICS": "No",
        "ANABRANCH_KEEP_ALIVE_INTERVAL_S": "2.5",
        "ANABRANCH_LOG_FORMAT": "json",
    }
    settings = load(environment=environment)
    assert settings.auto_create_topics is False
    assert settings.keep_alive_interval_s == 2.5
    assert settings.log_format == "json"


def test_settings_that_contradict_each_other_are_refused():
    assert "both 7000" in refusal(flags={"port": 7000, "web_port": 7000})
    assert load({"port": 0, "web_port": 0}).port == 0
    assert "forgotten" in refusal(flags={"metadata_url": "memory:"})
    assert load({"metadata_url": "memory:", "ledgers_url": "memory:"}).port == 6650
    assert "a --metadata-url that bookies can reach" in refusal(
        flags={"ledgers_url": "bookkeeper:?ensemble=1"}
    )
    assert load({"ledgers_url": "bookkeeper:zk:here:2181"}).port == 6650
    on_bookies = {"metadata_url": "zk:here:2181", "ledgers_url": "bookkeeper:?ensemble=1"}
    assert load(on_bookies).port == 6650


@pytest.mark.parametrize(
    ("host", "advertised", "expected"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("10.0.0.5", "", "10.0.0.5"),
        ("0.0.0.0", "", "127.0.0.1"),
        ("0.0.0.0", "streams.example.org", "streams.example.org"),
    ],
)
def test_clients_are_given_an_address_they_can_reach(host, advertised, expected):
    assert Settings(host=host, advertised_address=advertised).reachable_host == expected


def test_every_setting_is_described():
    assert {field.name for field in fields(Settings)} == set(SETTINGS)
    for setting in SETTINGS.values():
        assert setting.help.endswith("."), setting.name


@pytest.mark.goal("core.B27", broken_by="reference_lacks_a_setting")
def test_reference_page_is_what_the_definition_says():
    page = ROOT / "docs" / "reference" / "settings.md"
    assert page.read_text() == settings_reference.render(), (
        "run: anabranch config docs > docs/reference/settings.md"
    )
