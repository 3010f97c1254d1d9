import contextvars
import json
import logging
import time
from typing import Any

import httpx
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from diem.process import log

pytestmark = pytest.mark.usefixtures("restored_logging")


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


@pytest.mark.parametrize(("level", "seen"), [("debug", True), ("info", False), ("error", False)])
def test_requests_of_the_http_client_are_logged_for_debugging_alone(
    capsys: pytest.CaptureFixture[str], level: str, seen: bool
) -> None:
    log.configure(level, "json", "data")
    logging.getLogger("httpx").info("HTTP Request: %s", "GET http://127.0.0.1/")
    assert bool(lines(capsys)) is seen


def test_traceback_is_part_of_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    (event,) = lines(capsys)
    assert "RuntimeError: boom" in event["exception"]


@pytest.mark.parametrize("name", ["token", "internal_key", "authorization", "Cookie", "query_string", "key", "apikey"])
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
        ("this/that ? or what?", "this/that ? or what?"),
        ("postgresql://diem:p@ss?word@host/db", f"postgresql://{log.REMOVED}@host/db"),
        ("https://a.example?c=d", f"https://a.example?{log.REMOVED}"),
        ("(?c=d)", f"(?{log.REMOVED}"),
        (f"is diem_k3v9x0ab_{'Ab1' * 14}x one?", f"is diem_k3v9x0ab_{log.REMOVED} one?"),
        ("diem_upstream_connections_total", "diem_upstream_connections_total"),
    ],
)
@pytest.mark.parametrize("fmt", ["json", "console"])
def test_secret_inside_a_text_is_removed(capsys: pytest.CaptureFixture[str], text: str, logged: str, fmt: str) -> None:
    log.configure("info", fmt)
    structlog.get_logger().info("x", detail=text)
    logging.getLogger("library").info(text)
    err = capsys.readouterr().err
    assert err.count(logged) == 2


def test_secret_inside_an_error_or_a_structure_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    url = "https://u:secret@a.example/b"
    structlog.get_logger().info("x", error=OSError(url), list=[url, {"a": url, "key": "secret"}], other=httpx.URL(url))
    assert "secret" not in json.dumps(event := lines(capsys)[0])
    assert event["error"] == f"https://{log.REMOVED}@a.example/b"


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_secret_inside_a_traceback_is_removed(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    log.configure("info", fmt)
    try:
        raise OSError("cannot read https://u:secret" + "@a.example/b")
    except OSError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed")
    err = capsys.readouterr().err
    assert err.count(f"cannot read https://{log.REMOVED}@a.example/b") == 2


HOSTILE = ["", "a", "/", "?", "#", "=", "@", ":", "://", " ", "\n", '"', "'", ",", "bearer", "Bearer ", "diem_", "é"]
forms = st.builds(
    str.format,
    st.sampled_from(
        [
            "postgresql://diem:{}@host/db",
            "https://{}@host",
            "https://a.example/b?token={}",
            "https://a.example?{}=1",
            "/v1/data/x?key={}",
            "Authorization: Bearer {}",
            "bearer  {}",
            "diem.v1.json, bearer.{}",
            "diem_k3v9x0ab_{}",
        ]
    ),
    st.just("s3cr3t" * 7 + "Q"),
)


@given(
    before=st.lists(st.sampled_from(HOSTILE)).map("".join),
    form=forms,
    after=st.lists(st.sampled_from(HOSTILE)).map("".join),
    fill=st.builds(
        lambda unit, length, less: (unit * length)[: max(0, length - less)],
        st.sampled_from(["a", " ", "/", "x "]),
        st.sampled_from([0, 4096, 8192, 20_000]),
        st.integers(0, 120),
    ),
    end=st.sampled_from([0, 4096, 8192]),
)
def test_no_secret_survives_in_whatever_text_and_wherever_it_is_cut(
    before: str, form: str, after: str, fill: str, end: int
) -> None:
    text = fill + before + " " + form + " " + after + "b " * (end // 2)
    assert "s3cr3t" not in log._clean(text)
    assert "s3cr3t" not in log._clean(form + text)


@pytest.mark.parametrize(
    "unit",
    ["a", "/", "?", "@", "://", "://a", "bearer ", "bearer.", "diem_", "diem_aaaaaaaa_a", "a ", "a?", "/?", "a @"],
)
def test_redaction_takes_time_linear_in_the_text(unit: str) -> None:
    def seconds(characters: int) -> float:
        text = (unit * characters)[:characters]
        durations = []
        for _ in range(5):
            started = time.process_time()
            log._clean(text)
            durations.append(time.process_time() - started)
        return min(durations)

    # Quadratic would be 16 times as much; and what is longer than that is cut.
    assert seconds(log.MAX_CHARACTERS) < 12 * seconds(log.MAX_CHARACTERS // 4) + 0.001
    assert seconds(8 * log.MAX_CHARACTERS) < 12 * seconds(log.MAX_CHARACTERS) + 0.001


def test_long_text_is_cut_in_its_middle(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    structlog.get_logger().info("x", detail="begin " + "a" * 64 * 1024 + " end")
    detail = lines(capsys)[0]["detail"]
    assert detail.startswith("begin aaa")
    assert detail.endswith(" end")
    assert "a [57354 characters] " in detail
    assert len(detail) < log.MAX_CHARACTERS + 100


def test_console_format_is_for_the_eye(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "console", "data")
    structlog.get_logger().info("started", port=1)
    assert "started" in (text := capsys.readouterr().err)
    assert "{" not in text


def test_text_of_a_failure_can_be_rewritten(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        log.rewrite_failures(str.upper)
        log.fail("it fails")

    contextvars.copy_context().run(run)
    log.fail("it fails")
    assert capsys.readouterr().err == "diem: IT FAILS\ndiem: it fails\n"


def test_failure_is_one_line_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    log.fail("cannot read https://a.example/b?key=1")
    assert capsys.readouterr().err == f"diem: cannot read https://a.example/b?{log.REMOVED}\n"
