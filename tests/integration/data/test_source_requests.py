"""The HTTP source's requests as publishers want them: header fields, parameters, secrets, dates, redirects."""

import logging
from pathlib import Path

import pytest

from services.data.sources.config import load
from services.data.sources.trial import try_sources
from tests.integration.data.source_bench import CSV, Bench
from tests.support.publisher import Publisher, Reply, Sent, published

SECRET = "s3cr3t/+ key"


def secret_file(directory: Path, name: str = "key.txt", text: str = SECRET) -> Path:
    file = directory / name
    file.write_text(text + "\n")
    file.chmod(0o600)
    return file


SECRETS = """
headers = { "X-API-Key" = { file = "key.txt" }, Authorization = { file = "key.txt", prefix = "Bearer " }, Accept = "text/csv" }
query = { token = { file = "key.txt" }, area = "GR & BG", limit = 100 }
"""  # noqa: E501


async def test_fields_and_parameters_are_sent_with_secrets_of_files(tmp_path: Path, publisher: Publisher) -> None:
    secret = secret_file(tmp_path)
    bench = Bench(tmp_path, publisher, SECRETS, path="/p.csv?a=1,2&b=%2B")
    assert await bench.poll() is None
    (sent,) = publisher.requests
    assert (sent.headers["x-api-key"], sent.headers["authorization"]) == (SECRET, f"Bearer {SECRET}")
    assert (sent.method, sent.path, sent.headers["accept"]) == ("GET", "/p.csv", "text/csv")
    assert sent.target.startswith("/p.csv?a=1,2&b=%2B&area=GR%20%26%20BG&limit=100&token=")
    assert sent.query["token"] == SECRET
    secret.write_text("another one")
    await bench.poll()
    assert publisher.requests[1].headers["x-api-key"] == publisher.requests[1].query["token"] == "another one"


async def test_polls_stay_conditional_when_a_secret_rotates(tmp_path: Path, publisher: Publisher) -> None:
    secret = secret_file(tmp_path)
    publisher.answer = lambda sent: Reply(status=304) if "if-none-match" in sent.headers else Reply(CSV, headers=TAG)
    bench = Bench(tmp_path, publisher, SECRETS)
    await bench.poll()
    secret.write_text("another one")
    assert await bench.poll() is None
    assert len(bench.stored) == 1


TAG = {"ETag": '"1"'}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(f"no such key: {SECRET}"), "it is not valid, and not shown because it has the secret in it"),
        (
            Reply(f"<!doctype html><title>no {SECRET}</title>"),
            "status 200, but an HTML page, titled 'no ***', instead of data: check url, and the key if one is needed",
        ),
        (Reply(status=301, headers={"Location": "http://s3cr3t%2F%2B%20key.example/"}), None),
        (Reply(status=401), "status 401 (Unauthorized): it needs a key or token that is valid (headers, query)"),
    ],
)
async def test_a_secret_is_in_no_error_no_status_and_no_log(
    tmp_path: Path, publisher: Publisher, reply: Reply, error: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    secret_file(tmp_path)
    publisher.answer = lambda _request: reply
    bench = Bench(tmp_path, publisher, SECRETS)
    found = await bench.poll()
    assert found is not None
    assert error is None or found == error
    (trial,) = await try_sources(load(bench.file), bench.clock)
    shown = f"{bench.source.health.status()} {bench.source.health.public_status()} {trial} {caplog.text}"
    for form in (SECRET, "s3cr3t"):
        assert form not in shown


async def test_an_unreadable_secret_fails_the_poll_and_names_its_field(tmp_path: Path, publisher: Publisher) -> None:
    bench = Bench(tmp_path, publisher, SECRETS)
    assert await bench.poll() == f"headers: X-API-Key: {tmp_path}/key.txt: No such file or directory"
    secret_file(tmp_path).chmod(0o644)
    assert "headers: X-API-Key: " in str(await bench.poll())
    assert "others may read it" in str(await bench.poll())
    secret_file(tmp_path, text="two\nlines")
    assert await bench.poll() == "headers: X-API-Key: it has a character that a header field cannot have"
    assert publisher.requests == []
    secret_file(tmp_path)
    assert await bench.poll() is None


async def test_dates_are_filled_in_by_the_zone_of_the_source(tmp_path: Path, publisher: Publisher) -> None:
    fields = """zone = "Europe/Athens"
query = { from = "{utc:%Y%m%d%H%M}" }
method = "POST"
body = '{"day": "{date-1d:%Y-%m-%d}", "x": {}}'
"""
    bench = Bench(tmp_path, publisher, fields, path="/{date:%Y}/{date:%m%d}.csv")
    assert await bench.poll() is None
    (sent,) = publisher.requests
    # It is half past midnight in Athens.
    assert (sent.method, sent.target) == ("POST", "/2026/0329.csv?from=202603282200")
    assert (sent.body, sent.headers["content-type"]) == (b'{"day": "2026-03-28", "x": {}}', "application/json")


async def test_an_answer_of_another_day_is_another_one(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda sent: Reply(status=304) if "if-none-match" in sent.headers else Reply(CSV, headers=TAG)
    bench = Bench(tmp_path, publisher, "", path="/{date}.csv")
    for _ in range(2):
        await bench.poll()
        bench.clock.step_wall(86_400)
    assert [sent.path for sent in publisher.requests] == ["/2026-03-28.csv", "/2026-03-29.csv"]
    assert not any("if-none-match" in sent.headers for sent in publisher.requests)
    assert len(bench.stored) == 2


async def test_posts_are_not_conditional(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda _request: Reply(CSV, headers=TAG)
    form = "application/x-www-form-urlencoded"
    bench = Bench(tmp_path, publisher, f'method = "POST"\nbody = "a=1"\ncontent_type = "{form}"')
    await bench.poll()
    assert await bench.poll() is None
    assert [sent.headers.get("if-none-match") for sent in publisher.requests] == [None, None]
    assert publisher.requests[0].headers["content-type"] == form
    assert len(bench.stored) == 1


async def test_redirects_lead_to_allowed_hosts_without_secrets(tmp_path: Path, publisher: Publisher) -> None:
    secret_file(tmp_path)
    async with published() as other:
        other.answer = lambda _request: Reply(CSV)
        there = f"{other.url}/file.csv?signed=1"
        publisher.answer = lambda _request: Reply(status=302, headers={"Location": there})
        bench = Bench(tmp_path, publisher, SECRETS)
        host = f"127.0.0.1:{other.port}"
        expected = f'redirected (302) to another host, {host}, which is not followed: redirects = ["{host}"] allows it'
        assert await bench.poll() == expected
        assert other.requests == []
        bench = Bench(tmp_path, publisher, SECRETS + f'redirects = ["{host}"]')
        assert await bench.poll() is None
        (sent,) = other.requests
        assert sent.target == "/file.csv?signed=1"
        assert {"x-api-key", "authorization"} & sent.headers.keys() == set()
        assert SECRET not in str(sent)


@pytest.mark.parametrize(("status", "method", "body"), [(302, "GET", b""), (307, "POST", b"q"), (308, "POST", b"q")])
async def test_a_redirected_post_is_repeated_as_its_status_says(
    tmp_path: Path, publisher: Publisher, status: int, method: str, body: bytes
) -> None:
    publisher.answer = lambda sent: (
        Reply(CSV) if sent.path == "/to" else Reply(status=status, headers={"Location": "/to"})
    )
    bench = Bench(tmp_path, publisher, 'method = "POST"\nbody = "q"')
    assert await bench.poll() is None
    assert (publisher.requests[1].method, publisher.requests[1].body) == (method, body)
    assert ("content-type" in publisher.requests[1].headers) == bool(body)


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("iso-8859-1", "time;€".encode("cp1252")),
        ("utf-16-le", "time;€".encode("utf-16-le")),
        # Servers state a default of theirs for what is UTF-8.
        ("iso-8859-1", "time;€".encode()),
        ("no-such-encoding", "time;€".encode()),
    ],
)
async def test_the_encoding_is_the_one_that_the_answer_declares(
    tmp_path: Path, publisher: Publisher, charset: str, body: bytes
) -> None:
    publisher.answer = lambda _request: Reply(body, headers={"Content-Type": f'text/csv; charset="{charset}"'})
    error = await Bench(tmp_path, publisher, "").poll()
    assert "time;€" in str(error)


@pytest.mark.parametrize(
    ("declared", "encoding", "body"),
    [
        ("iso-8859-1", "", "zeit;€".encode("cp1252")),
        ("iso-8859-1", "", "zeit;€".encode("utf-8-sig")),
        ("iso-8859-1", "", "zeit;€".encode("utf-16")),
        # The header field of a server may be wrong for all files alike: a mapping knows better.
        ("iso-8859-1", 'encoding = "cp852"', "zeit;ł".encode("cp852")),
        ("utf-8", "", "zeit;€".encode()),
    ],
)
async def test_the_encoding_of_a_mapping_and_byte_order_marks_come_before_the_declared_one(
    tmp_path: Path, publisher: Publisher, declared: str, encoding: str, body: bytes
) -> None:
    publisher.answer = lambda _request: Reply(body, headers={"Content-Type": f"text/csv; charset={declared}"})
    bench = Bench(tmp_path, publisher, f"[source.mapping]\ndelimiter = ';'\n{encoding}")
    assert ("ł" if encoding else "€") in str(await bench.poll())


async def test_a_body_in_another_encoding_than_declared_is_refused(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda _request: Reply(b"\xd8\x00", headers={"Content-Type": "text/csv; charset=utf-16-be"})
    assert "not UTF-8" in str(await Bench(tmp_path, publisher, "").poll())


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, "status 429 (Too Many Requests): it limits the number of requests: raise every, or lower per_minute"),
        (503, "status 503 (Service Unavailable): it is overloaded, or being maintained"),
        (404, "status 404 (Not Found)"),
        (599, "status 599"),
    ],
)
async def test_a_status_is_named(tmp_path: Path, publisher: Publisher, status: int, error: str) -> None:
    def answer(_sent: Sent) -> Reply:
        return Reply(status=status, headers={"Retry-After": "120"})

    publisher.answer = answer
    bench = Bench(tmp_path, publisher, "")
    assert await bench.poll() == error


async def test_sources_check_sends_the_same_requests(tmp_path: Path, publisher: Publisher) -> None:
    secret_file(tmp_path)
    bench = Bench(tmp_path, publisher, SECRETS, path="/{date}.csv")
    (trial,) = await try_sources(load(bench.file), bench.clock)
    assert (trial.error, trial.points) == (None, 1)
    assert publisher.requests[0].query["token"] == SECRET
    assert publisher.requests[0].path == "/2026-03-28.csv"
