"""The fast path answers exactly as the routes do, with the same effects, or leaves the request to them."""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from itertools import product
from typing import Any, NamedTuple

import pytest

from diem.links.connection_limits import ConnectionLimits
from diem.links.fast_path import FastAnswer, RequestHead
from diem.links.http_server import make_server
from diem.process.limits import RateLimit
from diem.process.listeners import Network
from services.data.access.access import Access
from services.data.access.keys import ApiKeys, new_key
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.api import Api
from services.data.api.rendered import OLD_S
from tests.support.http_wire import connected
from tests.support.http_wire import rest as end
from tests.support.security_events import recorded_events
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import BODY, WRITE_KEY, Rest, body

HERE, THERE = "127.0.0.1", "192.0.2.1"
CSV = {"Accept": "text/csv"}


class Answer(NamedTuple):
    """An answer as it was sent."""

    status: int
    fields: list[tuple[str, str]]
    """In the order of their names."""
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)


class Listener:
    """A server of an interface, with or without the fast path."""

    def __init__(self, api: Api, *, fast: bool = True, trusted: Sequence[Network] = ()) -> None:
        self.api = api
        self.fast_answers = 0
        """Answers of the fast path."""
        self._server = make_server(
            api.app,
            limits=ConnectionLimits(10, 10),
            drain_s=1,
            privileged=api.app.is_privileged,
            fast_path=self._counted if fast else None,
            trusted_proxies=trusted,
        )
        self._server.config.load()

    def _counted(self, head: RequestHead, address: str) -> FastAnswer | None:
        answer = self.api.fast_path(head, address)
        self.fast_answers += answer is not None
        return answer

    async def ask(self, request: "Asked") -> Answer:
        """Return the answer to a request on a connection of its own."""
        fields = {"Host": "localhost:8080", **request.headers}
        lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        protocol, wire = connected(self._server, request.client)
        protocol.data_received(("\r\n".join(lines) + "\r\n\r\n").encode())
        while True:
            head, complete, content = wire.sent.partition(b"\r\n\r\n")
            status, *given = head.decode().split("\r\n")
            sent = sorted((name.lower(), value) for name, _, value in (line.partition(": ") for line in given))
            has_body = request.method != "HEAD" and " 304 " not in status
            if complete and (not has_body or len(content) == int(dict(sent)["content-length"])):
                break
            await asyncio.sleep(0.001)
        await end(protocol)
        return Answer(int(status.split()[1]), sent, content)


@pytest.fixture
async def version(rest: Rest) -> int:
    """The version of ``/a``, the second one."""
    for value in (5, 6):
        rest.clock.advance(1)
        accepted = (await rest.writer.put("/v1/data/a", json=body(value), headers=AS_SERIES)).json()
    return int(accepted["version"])


KEY, KEY_TEXT = new_key("a page", "keys", 0)
NARROW, NARROW_TEXT = new_key("another page", "narrow", 0)
PLANS = (AccessPlan("keys", 1000), AccessPlan("narrow", prefixes=("/b",)))
ORIGIN = {"Origin": "https://page.example"}
OTHERS: dict[str, Any] = {"cors_origins": frozenset({"https://another.example"})}
LISTED: dict[str, Any] = {"cors_origins": frozenset({"https://page.example"})}


class Asked(NamedTuple):
    """A request."""

    target: str = "/v1/data/a"
    headers: Mapping[str, str] = {}
    method: str = "GET"
    client: str = HERE


async def both(
    rest: Rest,
    requests: Sequence[Asked],
    *,
    plan: AccessPlan | None = None,
    trusted: Sequence[Network] = (),
    **options: Any,
) -> list[tuple[Answer, bool]]:
    """Return the answers to requests, and whether they were the fast path's.

    The requests are sent to a listener with the fast path and to one without it. Answers, counted requests, usage and
    lines of the security log must be the same.
    """
    plans = AccessPlans([*PLANS, *([] if plan is None else [plan])])
    seen, fast_answers = [], []
    for fast in (True, False):
        access = Access(plans, ApiKeys([KEY, NARROW]), rest.store, rest.clock)
        listener = Listener(rest.api(access, **options), fast=fast, trusted=trusted)
        await listener.ask(Asked())
        answers = []
        with recorded_events() as events:
            for request in requests:
                before = listener.fast_answers
                answers.append(await listener.ask(request))
                if fast:
                    fast_answers.append(listener.fast_answers > before)
        effects = (listener.api.app.requests, access.usage.drain(), list(map(str, access.samples())), events.all())
        seen.append((answers, effects))
    assert seen[0] == seen[1]
    return list(zip(seen[0][0], fast_answers, strict=True))


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        pytest.param({}, {}, id="plain"),
        pytest.param(CSV, {}, id="CSV"),
        pytest.param({"Accept": "text/html, */*;q=0.1"}, {}, id="browser"),
        pytest.param(ORIGIN, {}, id="another origin"),
        pytest.param(ORIGIN, LISTED, id="listed origin"),
        pytest.param(ORIGIN, OTHERS, id="origin that is not listed"),
        pytest.param(ORIGIN, {"cors_origins": frozenset({"*"})}, id="any origin"),
        pytest.param({}, LISTED, id="no origin"),
        pytest.param({}, {"plan": AccessPlan("anonymous", 1000, 10_000)}, id="plan"),
    ],
)
async def test_answers_are_those_of_the_routes(
    rest: Rest, version: int, headers: dict[str, str], options: dict[str, Any]
) -> None:
    tags = ["*", '"1-json"', f'W/"{version}-json", "2-json"', f'"{version}-csv"']
    conditions: list[dict[str, str]] = [{}, *({"If-None-Match": tag} for tag in tags)]
    for public, named in product((False, True), (False, True)):
        target = f"/v1/data/a?version={version}" if named else "/v1/data/a"
        # What depends on the origin is kept for pages that may read, or anybody could fill caches with other names.
        shared = public and not (headers == ORIGIN and options == OTHERS)
        caching = f"{'public' if shared else 'private'}, max-age=31536000, immutable" if named else "no-cache"
        requests = [
            Asked(target, headers | condition, method) for condition in conditions for method in ("GET", "HEAD", "GET")
        ]
        # The first answer in a format may be the routes'.
        answers = (await both(rest, [requests[0], *requests], public=public, **options))[1:]
        assert all(fast for _, fast in answers)
        assert {answer.status for answer, _ in answers} == {200, 304}
        for answer, _ in answers:
            assert answer.headers["cache-control"] == caching
            assert ("Authorization" in answer.headers["vary"]) == (caching.startswith("private"))
            assert len(dict(answer.fields)) == len(answer.fields)
            # An answer that caches give to others has no limits of one address.
            assert ("ratelimit" in answer.headers) == ("plan" in options and not (public and named))


async def test_only_one_spelling_of_a_version_may_be_kept_by_shared_caches(rest: Rest, version: int) -> None:
    encoded = "".join(f"%{ord(digit):x}" for digit in str(version))
    spellings = [
        f"a?version=0{version}",
        f"a?version={encoded}",
        f"a?version={version}&x=1",
        f"a?x=1&version={version}",
        f"a?version={version}&version={version}",
        f"a?version=1&version={version}",
        f"%61?version={version}",
    ]
    requests = [Asked(f"/v1/data/{each}", {}) for each in [f"a?version={version}", *spellings]]
    (kept, _), *others = await both(rest, requests, public=True)
    assert kept.headers["cache-control"].startswith("public")
    for answer, fast in others:
        assert (answer.status, fast) == (200, False)
        assert answer.headers["cache-control"].startswith("private")


async def put(rest: Rest, name: str, content: bytes, media_type: str) -> int:
    answer = await rest.writer.put(f"/v1/data{name}", content=content, headers={"Content-Type": media_type})
    return int(answer.json()["version"])


@pytest.mark.parametrize("public", [False, True])
async def test_answers_of_every_kind_are_those_of_the_routes(rest: Rest, public: bool) -> None:
    contents = {
        "/k/html": (b"<script>alert(1)</script>", "text/html;charset=utf-8"),
        "/k/text": (b"text", "text/plain"),
        "/k/image": (b"\x89PNG", "image/png"),
        "/k/document": (b'{"__proto__":{"a":1}}', "application/geo+json"),
        "/k/csv": (b"time,value\n2026-01-01T00:00:00Z,1\n", "text/csv"),
    }
    versions = {}
    for name, (content, media_type) in contents.items():
        query = "?unit=MW&resolution=PT1H" if media_type == "text/csv" else ""
        versions[name] = await put(rest, name + query, content, media_type)
    await rest.writer.post("/v1/data/k/notice")
    versions |= {name: rest.store.index.heads[name].version for name in ("/k/notice", "/k/")}
    for name, version in versions.items():
        for target in (f"/v1/data{name}", f"/v1/data{name}?version={version}"):
            tags = [f'"{version}-{suffix}"' for suffix in ("json", "bytes", "csv")]
            conditions: list[dict[str, str]] = [{}, CSV, *({"If-None-Match": tag} for tag in tags)]
            requests = [Asked(target, headers, method) for headers in conditions for method in ("GET", "HEAD", "GET")]
            answers = await both(rest, [*requests, *requests], public=public)
            assert all(fast for _, fast in answers[len(requests) :]), target
            for answer, _ in answers:
                headers = answer.headers
                assert headers["x-content-type-options"] == "nosniff"
                if answer.status == 200 and name in {"/k/html", "/k/text", "/k/image"}:
                    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
                    assert (headers.get("content-disposition") == "attachment") == (name == "/k/html")
                    assert headers["content-type"] == contents[name][1]
                    assert headers["etag"] == f'"{version}-bytes"'


async def test_versions_of_another_kind_than_the_current_one_keep_theirs(rest: Rest) -> None:
    html = await put(rest, "/a", b"<p>", "text/html")
    await rest.writer.delete("/v1/data/a")
    document = await put(rest, "/a", b'{"a":1}', "application/json")
    await rest.writer.delete("/v1/data/a")
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    expected = {html: ("text/html", b"<p>", "bytes"), document: ("application/json", b'{"a":1}', "json")}
    for version, (media_type, content, suffix) in expected.items():
        requests = [
            Asked(f"/v1/data/a?version={version}", headers, method)
            for headers in ({}, CSV, {"If-None-Match": f'"{version}-json"'}, {"If-None-Match": f'"{version}-csv"'})
            for method in ("GET", "HEAD", "GET")
        ]
        for (answer, _), request in zip(await both(rest, requests), requests, strict=True):
            if answer.status == 304:
                assert request.headers == {"If-None-Match": f'"{version}-{suffix}"'}
                continue
            assert (answer.status, answer.headers["content-type"]) == (200, media_type)
            assert answer.body == (b"" if request.method == "HEAD" else content)
            assert answer.headers["etag"] == f'"{version}-{suffix}"'
            assert ("content-security-policy" in answer.headers) == (suffix == "bytes")


KEYED = {"Authorization": f"Bearer {KEY_TEXT}"}


@pytest.mark.parametrize("public", [False, True])
async def test_what_the_fast_path_leaves_to_the_routes_has_no_effect_of_its_own(
    rest: Rest, version: int, *, public: bool
) -> None:
    await rest.writer.put("/v1/data/gone", json=BODY, headers=AS_SERIES)
    await rest.writer.delete("/v1/data/gone")
    named = f"/v1/data/a?version={version}"
    requests = {
        200: [
            *(Asked(target, headers) for target in ("/v1/data/a", named) for headers in (KEYED, {**KEYED, **ORIGIN})),
            Asked("/v1/data/%61"),
            Asked("/v1/data/a?version=1&" + named.partition("?")[2]),
            Asked("/v1/data/a?x=1"),
            Asked("/v1/endpoints"),
            Asked("/v1/history/a"),
            Asked("/v1/data/a", {"Authorization": f"Bearer {WRITE_KEY}"}),
        ],
        400: [
            Asked(headers={"Host": "evil.example"}),
            Asked("/v1/data/a?version=0"),
            Asked("/v1/data/a?version="),
            Asked("/v1/data/a?version=+1"),
        ],
        401: [Asked(headers={"Authorization": "Bearer diem_x"})],
        403: [Asked(headers={"Authorization": f"Bearer {NARROW_TEXT}"})],
        404: [
            Asked("/v1/data/none"),
            Asked("/v1/data/a?version=999999999999999999"),
            Asked("/v1/data/a?version=1"),
        ],
        406: [Asked(headers={"Accept": "image/png"}), Asked(named, {"Accept": "image/png"})],
        410: [Asked("/v1/data/gone")],
    }
    for status, asked in requests.items():
        for (answer, fast), request in zip(await both(rest, asked, public=public), asked, strict=True):
            assert (answer.status, fast) == (status, False), request
            if status != 200 or "Authorization" in request.headers:
                assert "public" not in answer.headers["cache-control"], request


async def test_refusals_are_those_of_the_routes(rest: Rest, version: int) -> None:
    named = f"/v1/data/a?version={version}"
    for status, options in (
        (401, {"anonymous": lambda address: address == HERE}),
        (403, {"plan": AccessPlan("anonymous", prefixes=("/b",))}),
        (429, {"plan": AccessPlan("anonymous", 2)}),
        (429, {"rate": RateLimit(0.1, 1)}),
    ):
        for public, headers in product((False, True), (ORIGIN, {})):
            requests = [Asked(target, headers, client=THERE) for target in ("/v1/data/a", named)] * 2
            answers = await both(rest, requests, public=public, **LISTED, **options)
            answer, fast = answers[-1]
            assert (answer.status, fast, answer.headers["cache-control"]) == (status, True, "no-store")


@pytest.mark.parametrize("field", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_a_request_counts_for_the_client_behind_a_proxy(rest: Rest, version: int, field: str) -> None:
    def is_here(address: str) -> bool:
        return address == HERE

    requests = [
        Asked(headers={field: address}, client=peer) for address in (HERE, THERE, "x") for peer in (HERE, THERE)
    ]
    for trusted in ([], [ip_network(THERE)]):
        answers = await both(rest, requests, anonymous=is_here, trusted=trusted)
        assert all(fast for _, fast in answers)
        admitted = [answer.status == 200 for answer, _ in answers]
        believed = field == "X-Forwarded-For" and bool(trusted)
        assert admitted == [False, believed, False, False, False, False]


async def test_an_old_version_is_answered_while_the_store_has_been_asked_lately(rest: Rest, version: int) -> None:
    listener, old = Listener(rest.api()), Asked(f"/v1/data/a?version={version}")
    rest.clock.advance(1)
    await rest.writer.put("/v1/data/a", json=body(7), headers=AS_SERIES)
    expected = await listener.ask(old)
    assert (expected.status, listener.fast_answers) == (200, 0)
    assert await listener.ask(old) == expected
    assert listener.fast_answers == 1
    rest.clock.advance(OLD_S)
    assert await listener.ask(old) == expected
    assert listener.fast_answers == 1


async def test_a_dataset_that_is_not_in_memory_is_left_to_the_routes(rest: Rest, version: int) -> None:
    listener = Listener(rest.api())
    fast = []
    for request in (Asked(), Asked(), Asked(headers=CSV)):
        before = listener.fast_answers
        await listener.ask(request)
        fast.append(listener.fast_answers > before)
    assert fast == [False, True, True]  # CSV is made of what the store has in memory
    await rest.writer.put("/v1/data/a", json=body(7), headers=AS_SERIES)
    assert b'"value":7}' in (await listener.ask(Asked())).body


async def test_a_large_answer_costs_more_than_one_request(
    rest: Rest, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.data.api.cost.BYTES_PER_REQUEST", 50)
    requests = [Asked(client=THERE)] * 3
    answers = await both(rest, requests, rate=RateLimit(0.1, 5))
    assert 50 * 4 > len(answers[0][0].body) > 50 * 2
    assert [answer.status for answer, _ in answers] == [200, 200, 429]
    assert all(fast for _, fast in answers)
