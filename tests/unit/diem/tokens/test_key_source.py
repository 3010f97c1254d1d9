import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from diem.errors import ConfigurationError
from diem.process.clock import ManualClock
from diem.process.metrics import Sample
from diem.tokens.errors import BadKeySet, KeysMissing, KeysUnavailable, TokenInvalid
from diem.tokens.key_set import MAX_DOCUMENT_BYTES, KeySet
from diem.tokens.key_source import POLL_FILE_S, POLL_URL_S, KeyFile, KeySource, KeyUrl, is_of_data_service, location_of
from diem.tokens.verifier import Verifier
from tests.support.file_owners import give_away, needs_root
from tests.support.patience import PATIENCE_S
from tests.support.tokens import NOW, Issuer, key_set

URL = "http://127.0.0.1:8080/v1/tokens/keys"


def written(path: Path, content: bytes, mode: int = 0o644) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_file_is_read_again_only_after_a_change(tmp_path: Path) -> None:
    first, second = Issuer("a"), Issuer("b")
    file = KeyFile(written(tmp_path / "keys", key_set(first)))
    assert file.read() == KeySet((first.key,), {})
    assert file.read() is None
    written(tmp_path / "keys", key_set(first, second))
    assert file.read() == KeySet((first.key, second.key), {})
    # As editors and secret mounts do it: a new file with the same size.
    replacement = written(tmp_path / "new", key_set(second, first))
    os.replace(replacement, tmp_path / "keys")  # noqa: PTH105
    assert file.read() == KeySet((second.key, first.key), {})


def test_secrets_are_read_from_private_files_only(tmp_path: Path) -> None:
    issuer = Issuer(algorithm="HS256")
    path = written(tmp_path / "keys", key_set(issuer), 0o644)
    file = KeyFile(path)
    with pytest.raises(BadKeySet, match="mode 0600"):
        file.read()
    path.chmod(0o600)
    assert file.read() == KeySet((issuer.key,), {})


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(KeysUnavailable, match="others may write"):
        KeyFile(written(tmp_path / "keys", key_set(Issuer()), mode)).read()


@needs_root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "keys", key_set(Issuer()))
    give_away(path)
    with pytest.raises(KeysUnavailable, match="belongs to user"):
        KeyFile(path).read()


def test_a_missing_file_a_directory_and_a_pipe_are_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", ".", "pipe"):
        with pytest.raises(KeysUnavailable) as caught:
            KeyFile(tmp_path / name).read()
        assert isinstance(caught.value, KeysMissing) == (name == "missing")


class Server:
    """Answers the requests of a :class:`KeyUrl` in memory."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self.requests: list[httpx.Request] = []
        self.answer = answer
        self.url = KeyUrl(URL, transport=httpx.MockTransport(self._handle))

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer(request)


def with_etag(document: bytes, etag: str) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("if-none-match") == etag:
            return httpx.Response(304)
        return httpx.Response(200, content=document, headers={"ETag": etag})

    return answer


async def test_a_url_is_asked_for_changes_only() -> None:
    first, second = Issuer("a"), Issuer("b")
    server = Server(with_etag(key_set(first), '"1"'))
    assert await server.url.poll() == KeySet((first.key,), {})
    assert await server.url.poll() is None
    server.answer = with_etag(key_set(second), '"2"')
    assert await server.url.poll() == KeySet((second.key,), {})
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, '"1"', '"1"']
    assert "authorization" not in server.requests[0].headers
    await server.url.close()


async def test_the_etag_of_a_bad_document_is_not_kept() -> None:
    server = Server(with_etag(b"{}", '"bad"'))
    for _ in range(2):
        with pytest.raises(BadKeySet):
            await server.url.poll()
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, None]
    await server.url.close()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(304),
        httpx.Response(302, headers={"Location": "https://evil.example/"}),
        httpx.Response(200, content=b"", headers={"Content-Encoding": "gzip"}),
        httpx.Response(200, content=b"x" * (MAX_DOCUMENT_BYTES + 1)),
        httpx.Response(200, content=key_set(Issuer(algorithm="HS256"))),
        httpx.Response(200, content=b"<html>"),
    ],
)
async def test_a_bad_answer_is_an_error(answer: httpx.Response) -> None:
    server = Server(lambda _request: answer)
    with pytest.raises((BadKeySet, KeysUnavailable)):
        await server.url.poll()
    assert len(server.requests) == 1
    await server.url.close()


async def test_an_endless_answer_is_cut_off() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b" " * 65536

    server = Server(lambda _request: httpx.Response(200, content=endless()))
    with pytest.raises(BadKeySet, match="bytes"):
        await server.url.poll()
    assert sent <= MAX_DOCUMENT_BYTES + 2 * 65536
    await server.url.close()


async def test_a_connection_that_fails_is_reported() -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    server = Server(refuse)
    with pytest.raises(KeysUnavailable, match="refused"):
        await server.url.poll()
    await server.url.close()


@pytest.mark.parametrize(
    "text",
    [
        "http://keys.example/jwks.json",
        "http://10.0.0.1:8080/v1/tokens/keys",
        "ftp://127.0.0.1/keys",
        "file:///etc/keys",
        "https://",
        "https://user:secret@keys.example/",
        "https://keys.example:99999/",
        "http://127.0.0.1.keys.example/",
        "http://127.0.0.1%2ekeys.example/",
        "http://[::1].keys.example/",
    ],
)
def test_locations_that_cannot_be_trusted_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        location_of(text)
    assert "secret" not in str(raised.value)


def test_a_location_is_a_path_or_a_url() -> None:
    for path in ("/etc/diem/keys.json", "keys.json"):
        assert isinstance(location_of(path), KeyFile)
    for url in ("https://keys.example/a", URL, "http://localhost:1/", "http://[::1]:8080/keys"):
        assert isinstance(location_of(url), KeyUrl)


class Place:
    """A location whose next answers the test chooses."""

    name = "place"
    poll_s = 20.0

    def __init__(self, *answers: KeySet | Exception | None) -> None:
        self.answers = list(answers)

    async def poll(self) -> KeySet | None:
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    """A source in which pauses take no time."""

    def __init__(self, *places: Place) -> None:
        self.verifier = Verifier()
        self.clock = ManualClock()
        self.pauses: list[float] = []
        self.source = KeySource(places, self.verifier, clock=self.clock, pause=self._pause)
        self._places = places

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    async def run(self) -> None:
        """Run until all answers were used."""
        task = asyncio.create_task(self.source.run())
        while any(place.answers for place in self._places):
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def accepts(self, issuer: Issuer, **changes: object) -> bool:
        try:
            self.verifier.verify(issuer.token(changes=changes), NOW)
        except TokenInvalid:
            return False
        return True

    def value(self, name: str, *labels: str) -> float:
        samples: list[Sample] = list(self.source.samples())
        return next(each.value for each in samples if each.metric.name == f"diem_{name}" and each.labels == labels)


A, B, C = Issuer("a"), Issuer("b"), Issuer("c")


async def test_a_rotation_is_followed() -> None:
    bench = Bench(Place(KeySet((A.key,)), None, KeySet((A.key, B.key))))
    await bench.run()
    assert bench.accepts(A)
    assert bench.accepts(B)
    bench = Bench(Place(KeySet((A.key,)), KeySet((A.key, B.key)), KeySet((B.key,))))
    await bench.run()
    assert not bench.accepts(A)
    assert bench.accepts(B)


def test_the_key_set_of_a_data_service_is_known_by_its_name() -> None:
    for name in ("/var/lib/diem/token-keys.json", "token-keys.json", URL, "https://diem.example/v1/tokens/keys"):
        assert is_of_data_service(name)
    for name in ("/etc/diem/keys.json", "https://login.example/jwks", "https://a.example/token-keys.json.d/x"):
        assert not is_of_data_service(name)


async def test_the_last_good_answer_is_kept_and_failures_are_retried_sooner() -> None:
    failures = [KeysUnavailable("away"), BadKeySet("broken")] * 20
    bench = Bench(Place(KeySet((A.key,), {"k3v9x0ab": NOW}), *failures))
    await bench.run()
    assert bench.accepts(A, key="other000")
    assert not bench.accepts(A)
    assert bench.pauses[0] == 20.0
    assert len(bench.pauses) == 1 + len(failures)
    assert all(0 <= pause <= POLL_URL_S for pause in bench.pauses)
    assert bench.pauses[1] <= 0.5
    assert bench.source.status()["locations"][0]["error"] == "not a usable JWK Set: broken"
    assert bench.value("token_key_failures") == len(failures)
    assert bench.value("token_keys_age_seconds") == pytest.approx(sum(bench.pauses), abs=0.1)
    assert bench.source.ready


async def test_a_recovered_location_has_no_error() -> None:
    bench = Bench(Place(KeysUnavailable("away"), KeySet((A.key,))))
    assert not bench.source.ready
    await bench.run()
    assert bench.source.ready
    assert bench.source.status() == {
        "keys": 1,
        "revoked": 0,
        "locations": [{"location": "place", "age_seconds": 20.0, "error": None}],
    }


async def test_a_file_has_ten_seconds_to_come_into_being_before_one_line_says_that_it_is_missing() -> None:
    with capture_logs() as lines:
        bench = Bench(Place(KeysMissing("no such file"), KeysMissing("no such file"), KeySet((A.key,))))
        await bench.run()
        assert bench.accepts(A)
    assert sum(bench.pauses[:2]) < 10.0
    assert [line["log_level"] for line in lines] == ["info"]

    with capture_logs() as lines:
        bench = Bench(Place(*[KeysMissing("no such file")] * 60, KeySet((A.key,))))
        await bench.run()
    assert [line["event"] for line in lines] == [
        "keys of client tokens not read",
        "keys of client tokens read again",
        "keys of client tokens",
    ]
    assert any(sum(bench.pauses[:count]) == pytest.approx(10.0) for count in range(60)), "not at the next poll only"


async def test_a_file_that_vanishes_is_reported_at_once() -> None:
    with capture_logs() as lines:
        await Bench(Place(KeySet((A.key,)), KeysMissing("no such file"))).run()
    assert [line["log_level"] for line in lines] == ["info", "warning"]


async def test_a_location_that_fails_does_not_delay_another() -> None:
    bench = Bench(Place(), Place(KeySet((B.key,))))
    await bench.run()
    assert bench.accepts(B)
    assert not bench.source.ready


async def test_keys_of_all_locations_are_trusted_and_each_revokes_tokens_of_its_own() -> None:
    bench = Bench(Place(KeySet((A.key,), {"key00001": NOW})), Place(KeySet((B.key,), {"key00002": NOW})))
    await bench.run()
    assert bench.accepts(A)
    assert bench.accepts(B)
    assert not bench.accepts(A, key="key00001")
    assert not bench.accepts(B, key="key00002")
    assert bench.accepts(A, key="key00002")
    assert bench.accepts(B, key="key00001")
    assert bench.source.status()["keys"] == 2


async def announced(place: Place, *keys: tuple[Issuer, str]) -> list[list[bool]]:
    """Return, for each announcement, whether tokens of issuers and API keys are still accepted."""
    bench = Bench()
    found: list[list[bool]] = []

    def on_withdrawn() -> None:
        found.append([bench.accepts(issuer, key=key) for issuer, key in keys])

    bench.source = KeySource(
        [place, Place(KeySet((C.key,)))],
        bench.verifier,
        on_withdrawn=on_withdrawn,
        clock=bench.clock,
        pause=bench._pause,
    )
    bench._places = (place,)
    await bench.run()
    return found


async def test_each_revocation_is_announced_once_after_it_is_in_force() -> None:
    place = Place(
        KeySet((A.key,)),
        KeySet((A.key,), {"key00001": NOW}),
        KeySet((A.key,), {"key00001": NOW, "key00002": NOW}),
        None,
        KeySet((A.key,), {"key00002": NOW}),
    )
    assert await announced(place, (A, "key00001"), (A, "key00002")) == [[False, True], [False, False]]


async def test_keys_that_left_a_set_are_announced_after_they_are_refused_and_new_ones_are_not() -> None:
    place = Place(
        KeySet((A.key,)),
        KeySet((A.key, B.key)),
        BadKeySet("broken"),
        KeySet((B.key,)),
        None,
        KeySet((B.key, C.key)),
        # Still a key of the other location.
        KeySet((B.key,)),
        KeySet((Issuer("b").key,)),
    )
    found = await announced(place, (A, "key00001"), (B, "key00001"), (C, "key00001"))
    assert found == [[False, True, True], [False, False, True]]


async def test_outcomes_are_counted() -> None:
    bench = Bench(Place(KeySet((A.key,), {"key00001": NOW})))
    await bench.run()
    token = A.token()
    for _ in range(3):
        bench.verifier.verify(token, NOW)
    bench.accepts(A, exp=int(NOW) - 60)
    bench.accepts(A, key="key00001")
    bench.accepts(B)
    counted = {name: bench.value("tokens_verified", name) for name in ("new", "known", "expired", "revoked", "invalid")}
    assert counted == {"new": 1, "known": 2, "expired": 1, "revoked": 1, "invalid": 1}
    assert (bench.value("token_keys"), bench.value("token_keys_revoked")) == (1, 1)


def test_files_must_be_usable_at_the_start(tmp_path: Path) -> None:
    verifier = Verifier()
    KeySource([str(written(tmp_path / "keys", key_set(A)))], verifier).load_files()
    assert verifier.verify(A.token(), NOW).subject == "alice"
    for name, content in (("bad", b"{}"), ("missing", None)):
        if content is not None:
            written(tmp_path / name, content)
        with pytest.raises(ConfigurationError, match=name):
            KeySource([str(tmp_path / name), URL], Verifier()).load_files()


async def test_a_changed_file_is_followed(tmp_path: Path) -> None:
    path = written(tmp_path / "keys", key_set(A))
    verifier, polled = Verifier(), asyncio.Event()

    async def pause(seconds: float) -> None:
        assert seconds == POLL_FILE_S
        polled.set()
        await asyncio.sleep(0.001)

    source = KeySource([str(path)], verifier, pause=pause)
    task = asyncio.create_task(source.run())
    await polled.wait()
    verifier.verify(A.token(), NOW)
    written(path, key_set(B))
    async with asyncio.timeout(PATIENCE_S):
        while not verifier.outcomes["new"] == 2:  # noqa: SIM201  # the second token of the loop is the first good one
            polled.clear()
            await polled.wait()
            try:
                verifier.verify(B.token(), NOW)
            except TokenInvalid:
                continue
    with pytest.raises(TokenInvalid):
        verifier.verify(A.token(), NOW)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
