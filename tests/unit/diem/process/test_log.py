import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from diem.process import log


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level
    logging.raiseExceptions = True
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_event_is_one_json_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json", "data")
    structlog.get_logger("x").info("started", port=8080)
    (event,) = lines(capsys)
    assert event["event"] == "started"
    assert event["process"] == "data"
    assert event["level"] == "info"
    assert event["port"] == 8080
    assert event["timestamp"].endswith("Z")


def test_logger_made_before_configuration_obeys_it(capsys: pytest.CaptureFixture[str]) -> None:
    logger = structlog.get_logger("early")
    log.configure("warning", "json")
    logger.info("unseen")
    logger.warning("seen")
    assert [event["event"] for event in lines(capsys)] == ["seen"]


def test_libraries_log_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json", "data")
    logging.getLogger("some.library").info("listening on %s", "127.0.0.1")
    (event,) = lines(capsys)
    assert event["event"] == "listening on 127.0.0.1"
    assert event["process"] == "data"


def test_traceback_is_part_of_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    (event,) = lines(capsys)
    assert "RuntimeError: boom" in event["exception"]


@pytest.mark.parametrize("name", ["token", "internal_key", "authorization", "Cookie", "query_string", "key"])
def test_field_named_like_a_secret_is_removed(capsys: pytest.CaptureFixture[str], name: str) -> None:
    log.configure("info", "json")
    structlog.get_logger().info("x", **{name: "abcdef"})
    assert lines(capsys)[0][name] == log.REMOVED


@pytest.mark.parametrize(
    ("text", "logged"),
    [
        ("Authorization: Bearer abcdef.ghi", f"Authorization: Bearer {log.REMOVED}"),
        ("diem.v1.json, bearer.YWJj", f"diem.v1.json, bearer.{log.REMOVED}"),
        ("postgresql://diem:secret@host/db", f"postgresql://{log.REMOVED}@host/db"),
        ("GET /v1/data/x?token=abc HTTP/1.1", f"GET /v1/data/x?{log.REMOVED} HTTP/1.1"),
        ("https://a.example/b?c=d", f"https://a.example/b?{log.REMOVED}"),
        ("what now? nothing", "what now? nothing"),
    ],
)
@pytest.mark.parametrize("fmt", ["json", "console"])
def test_secret_inside_a_text_is_removed(capsys: pytest.CaptureFixture[str], text: str, logged: str, fmt: str) -> None:
    log.configure("info", fmt)
    structlog.get_logger().info("x", detail=text)
    logging.getLogger("library").info(text)
    err = capsys.readouterr().err
    assert err.count(logged) == 2


def test_console_format_is_for_the_eye(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "console", "data")
    structlog.get_logger().info("started", port=1)
    assert "started" in (text := capsys.readouterr().err)
    assert "{" not in text


def test_failure_is_one_line_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    log.fail("cannot read https://a.example/b?key=1")
    assert capsys.readouterr().err == f"diem: cannot read https://a.example/b?{log.REMOVED}\n"
