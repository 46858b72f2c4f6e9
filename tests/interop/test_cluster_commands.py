"""`anabranch tenants|namespaces|topics|subscriptions|schemas|stats` against a server of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.errors import ConfigError
from anabranch.testing.servers import anabranch_standalone
from anabranch.testing.servers.standalone import Standalone


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with anabranch_standalone() as running:
        yield running


class Shell:
    """Runs commands as a user of one server."""

    def __init__(self, web_url: str) -> None:
        self._environment = {"ANABRANCH_WEB_URL": web_url}

    def __call__(self, *words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, list(words), env=self._environment)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def lines(self, *words: str) -> list[str]:
        return self(*words).stdout.splitlines()

    def read(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--output", "json", code=code).stdout)

    def refused(self, *words: str, code: int = 1) -> str:
        result = self(*words, code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr


@pytest.fixture
def shell(server: Standalone) -> Shell:
    return Shell(server.web_url)


def test_tenants_and_namespaces(shell: Shell) -> None:
    shell("tenants", "create", "shop", "--admin-role", "boss")
    assert shell.lines("tenants", "list") == ["public", "shop"]
    assert shell.read("tenants", "show", "shop")["admin_roles"] == ["boss"]
    shell("tenants", "update", "shop", "--admin-role", "chief")
    assert "chief" in shell("tenants", "show", "shop").stdout
    shell("namespaces", "create", "shop/orders", "--bundles", "2")
    assert shell.lines("namespaces", "list", "shop") == ["shop/orders"]
    assert "already exists" in shell.refused("namespaces", "create", "shop/orders")
    kept = shell.read("tenants", "delete", "shop", "--dry-run", code=1)
    assert kept["namespaces"] == ["shop/orders"]
    assert shell.read("namespaces", "delete", "shop/orders", "--dry-run")["topics"] == []
    assert shell.lines("namespaces", "list", "shop") == ["shop/orders"], "only said"
    shell("namespaces", "delete", "shop/orders")
    assert shell.lines("tenants", "delete", "shop", "--dry-run") == ["would delete shop"]
    assert "shop" in shell.lines("tenants", "list"), "only said"
    shell("tenants", "delete", "shop")
    assert "404" in shell.refused("tenants", "show", "shop")


def test_policies_and_permissions(shell: Shell) -> None:
    shell("namespaces", "create", "public/ruled")
    ruled = "public/ruled"
    rule = '{"retentionTimeInMinutes": 5, "retentionSizeInMB": 7}'
    shell("namespaces", "set-policy", ruled, "retention", rule)
    assert shell.read("namespaces", "get-policy", ruled, "retention")["value"] == json.loads(rule)
    assert "5" in shell("namespaces", "get-policy", ruled, "retention").stdout
    shell("namespaces", "set-policy", ruled, "message-ttl", "60")
    shell("namespaces", "set-policy", ruled, "schema-compatibility", "FULL")
    assert shell.read("namespaces", "policies", ruled)["message_ttl_in_seconds"] == 60
    assert "FULL" in shell("namespaces", "policies", ruled).stdout
    shell("namespaces", "clear-policy", ruled, "message-ttl")
    assert shell.lines("namespaces", "get-policy", ruled, "message-ttl") == ["not decided"]
    shell("namespaces", "grant", ruled, "clerk", "produce", "consume")
    assert shell.read("namespaces", "permissions", ruled) == {"clerk": ["consume", "produce"]}
    shell("namespaces", "revoke", ruled, "clerk")
    assert shell("namespaces", "permissions", ruled).stdout == ""
    assert ">= 0" in shell.refused("namespaces", "set-policy", ruled, "message-ttl", "--", "-1")


@pytest.mark.goal("core.B26", part="nouns", broken_by="dry_runs_delete")
def test_topics_subscriptions_and_figures(shell: Shell, server: Standalone) -> None:
    shell("topics", "create", "one")
    shell("topics", "create", "many", "--partitions", "2")
    full = "persistent://public/default/"
    assert shell.lines("topics", "list") == [f"{full}many", f"{full}one"]
    assert shell.read("topics", "partitions", "many", "--raise-to", "3")["partitions"] == 3
    shell("subscriptions", "create", "one", "s", "--from", "earliest")
    assert shell.lines("subscriptions", "list", "one") == ["s"]
    shell("produce", "one", "-m", "a", "-m", "b", "--no-batching", "--url", server.service_url)
    peeked = shell.read("subscriptions", "peek", "one", "s", "-n", "2")
    assert [each["value"] for each in peeked] == ["a", "b"]
    assert shell("subscriptions", "peek", "one", "s", "-n", "3", code=1).stdout.count("\n") == 2
    shell("subscriptions", "create", "many-partition-0", "s")
    batch = ("many-partition-0", "-m", "c", "-m", "d", "--key", "k")
    shell("produce", *batch, "--url", server.service_url)
    peeked = shell.read("subscriptions", "peek", "many-partition-0", "s")
    assert [(each["value"], each["key"], each["batch_messages"]) for each in peeked] == [
        ("c", "k", 2),
        ("d", "k", 2),
    ]
    assert [each["id"].rpartition(":")[2] for each in peeked] == ["0", "1"]
    shell("subscriptions", "skip", "one", "s", "-n", "1")
    assert shell.read("stats", "topic", "one")["subscriptions"]["s"]["msgBacklog"] == 1
    shell("subscriptions", "skip", "one", "s")
    shell("subscriptions", "reset", "one", "s", "--to", "1h")
    waiting = {row["topic"]: row["waiting"] for row in shell.read("stats", "namespace")}
    assert waiting[f"{full}one"] == 2
    assert len(waiting) == 4
    assert "waiting" in shell("stats", "topic", "one").stdout.splitlines()[-2]
    assert "storage bytes" in shell("stats", "namespace").stdout.splitlines()[0]
    assert "cursors" in json.loads(shell("stats", "internal", "one").stdout)
    assert shell.read("subscriptions", "delete", "one", "s", "--dry-run")["backlog"] == 2
    assert shell.lines("subscriptions", "list", "one") == ["s"], "only said"
    assert shell("subscriptions", "delete", "one", "none", "--dry-run", code=1)
    shell("topics", "unload", "one")
    assert shell.read("topics", "terminate", "one")["last"].endswith(":1")
    shell("topics", "truncate", "one", "--dry-run")
    shell("topics", "truncate", "one")
    shell("subscriptions", "delete", "one", "s")
    for topic in ("one", "many"):
        assert "would delete" in shell("topics", "delete", topic, "--dry-run").stdout
        assert f"{full}{topic}" in shell.lines("topics", "list"), "only said"
        shell("topics", "delete", topic)
    assert shell.lines("topics", "list") == []


def test_schemas(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    fields = [{"name": "a", "type": "string"}]
    file.write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    kind = ("--type", "Json", "--file", str(file))
    assert shell.read("schemas", "add", "typed", *kind)["version"] == 0
    assert json.loads(shell("schemas", "show", "typed").stdout)["name"] == "R"
    assert shell.read("schemas", "show", "typed", "--version", "0")["type"] == "JSON"
    assert [each["version"] for each in shell.read("schemas", "list", "typed")] == [0]
    assert "JSON" in shell("schemas", "list", "typed").stdout
    fields.append({"name": "b", "type": "string"})
    file.write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert not shell.read("schemas", "add", "typed", *kind, "--dry-run", code=1)["compatible"]
    assert shell.read("schemas", "delete", "typed", "--dry-run")["versions"] == 1
    shell("schemas", "show", "typed")
    shell("schemas", "delete", "typed")
    shell.refused("schemas", "show", "typed", "--version", "7")


def test_what_goes_wrong_is_one_line(shell: Shell, tmp_path: Path) -> None:
    nobody = Shell("http://127.0.0.1:1")
    assert "is the server running" in nobody.refused("tenants", "list", code=2)
    assert "needs tenant/namespace" in shell.refused("topics", "create", "a/b", code=2)
    access = tmp_path / "access.toml"
    for text, said in (
        ("token =", "no TOML"),
        ("tokn = 'x'", "unknown key 'tokn'"),
        ("token = 1", "has to be a text"),
        ("token_file = '/no/such'", "cannot be read"),
    ):
        access.write_text(text)
        assert said in shell.refused("tenants", "list", "--access", str(access), code=2)
    access.write_text("user = 'me'\npassword = 'x'\ntls_trust = '/no/such'")
    assert shell.lines("tenants", "list", "--access", str(access)) == ["public"]
    for words in (["set-policy", "a/b", "nonsense", "1"], ["set-policy", "a/b", "retention", "{"]):
        result = CliRunner().invoke(app, ["namespaces", *words])
        assert isinstance(result.exception, ConfigError)
