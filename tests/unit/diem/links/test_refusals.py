"""Texts of refusals: what is wrong, and what to do."""

import orjson
import pytest

from diem.links.refusals import Cause, RefusedClient, by_limit, foreign_origin, no_refusal
from diem.process.limits import AdmissionResult


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        ("http://localhost:5173", "start with --origin http://localhost:5173"),
        ("http://shop.localhost:4200", "start with --origin http://shop.localhost:4200"),
        (
            "https://App.Example:443",
            "https://app.example is not an allowed origin; if this page is yours, add it with --origin",
        ),
        ("http://127.0.0.1.evil.example", "if this page is yours, add it with --origin"),
        ("null", "has no origin (--origin null allows all such): serve it over http"),
        ("http://a.example/\x1b[31m path", "serve it over http"),
        ("x" * 10_000, "serve it over http"),
        ("http://" + "x" * 10_000, "serve it over http"),
        ("http://a;rm${IFS}-r", "serve it over http"),
        ("http://[::1]:5173", "start with --origin http://[::1]:5173"),
    ],
)
def test_the_remedy_of_a_foreign_origin_can_be_pasted_and_contains_no_text_of_others(origin: str, remedy: str) -> None:
    text = foreign_origin(origin)
    assert text.endswith(remedy)
    assert text.isprintable()
    assert len(text) < 300


@pytest.mark.parametrize("result", AdmissionResult)
def test_every_limit_has_a_cause_and_a_time_to_come_again(result: AdmissionResult) -> None:
    refusal = by_limit(result, 50, 3)
    assert refusal.cause in {Cause.LIMIT, Cause.RATE, Cause.FULL}
    assert refusal.status == result.status
    assert refusal.retry_after_s >= 3
    assert "{" not in refusal.detail


def test_the_answer_to_a_handshake_is_text_and_that_to_a_question_is_a_readable_problem() -> None:
    refusal = RefusedClient(429, Cause.LIMIT, "full up", 10)
    reply, problem = refusal.reply(), refusal.problem()
    assert (reply.status, reply.body, reply.headers) == (429, b"full up\n", {"Retry-After": "10"})
    assert orjson.loads(problem.body) == {"status": 429, "code": "limit", "detail": "full up"}
    assert problem.headers["Access-Control-Allow-Origin"] == "*"
    assert problem.headers["Retry-After"] == "10"
    assert RefusedClient(401, Cause.UNAUTHORISED, "no").reply().headers == {"WWW-Authenticate": "Bearer"}
    assert no_refusal().status == 426
