"""Log lines: bound fields, both styles, masked secrets."""

import io
import json
import logging

import pytest

from anabranch.telemetry.logs import MASK, configure, get_logger, redact


@pytest.fixture
def lines(request):
    stream = io.StringIO()
    everything, ours = logging.getLogger(), logging.getLogger("anabranch")
    before = (list(everything.handlers), everything.level, ours.level)
    configure(level="info", style=request.param, stream=stream)
    yield lambda: stream.getvalue().splitlines()
    everything.handlers[:] = before[0]
    everything.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.mark.goal("core.B20", part="logs", broken_by="bound_fields_are_lost")
@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_text_line_has_time_level_source_event_and_fields(lines):
    get_logger("broker").bind(topic="t").bind(consumer=5).info("topic_opened", entries=12)
    time, rest = lines()[0].split(" ", 1)
    assert time.endswith("Z")
    assert len(time) == len("2026-01-01T00:00:00.000Z")
    assert rest == "INFO broker topic_opened topic=t consumer=5 entries=12"


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_value_cannot_forge_a_line_or_a_field(lines):
    get_logger("broker").info("x", name="a\nb", other="c d=e", percent="%s", empty="")
    assert len(lines()) == 1
    assert lines()[0].endswith('name="a\\nb" other="c d=e" percent=%s empty=""')


@pytest.mark.goal("core.B20", part="logs", broken_by="fields_replace_the_event")
@pytest.mark.parametrize("lines", ["json"], indirect=True)
def test_json_line_is_one_object(lines):
    get_logger("broker").bind(topic="t").warning("odd", event="mine", n=1, what={"a": [1]})
    document = json.loads(lines()[0])
    assert document.pop("time")
    assert document == {
        "level": "warning",
        "logger": "broker",
        "event": "odd",
        "event_": "mine",
        "topic": "t",
        "n": 1,
        "what": {"a": [1]},
    }


@pytest.mark.parametrize("lines", ["json", "text"], indirect=True)
def test_cause_comes_with_its_traceback(lines):
    try:
        raise ValueError("broken")
    except ValueError as error:
        get_logger("broker").error("failed", cause=error)
    assert "ValueError: broken" in "\n".join(lines())


@pytest.mark.parametrize("lines", ["text"], indirect=True)
def test_level_holds_back_ours_and_warnings_of_others_pass(lines):
    get_logger("broker").debug("hidden")
    logging.getLogger("asyncio").info("hidden")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    assert [line.split(" ", 1)[1] for line in lines()] == ["WARNING asyncio slow callback"]


@pytest.mark.goal("core.B20", part="redaction", broken_by="deep_secrets_are_shown")
@pytest.mark.parametrize("lines", ["json", "text"], indirect=True)
def test_secrets_are_masked_wherever_they_are(lines):
    logger = get_logger("broker").bind(auth_token="s3cret")
    logger.info("x", Password="s3cret", config={"deep": [{"client_secret": "s3cret"}]})
    logger.error("y", credentials=("s3cret",))
    assert len(lines()) == 2
    assert not any("s3cret" in line for line in lines())
    assert all(MASK in line for line in lines())


def test_redaction_leaves_the_original_alone():
    fields = {"token": "a", "inner": {"password": "b"}, "plain": 1}
    assert redact(fields) == {"token": MASK, "inner": {"password": MASK}, "plain": 1}
    assert fields["inner"] == {"password": "b"}
