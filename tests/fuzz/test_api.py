"""The service does what its OpenAPI description says, whatever it is sent (schemathesis; the examples are bounded).

Schemathesis makes its examples while pytest collects, which would cost each worker of a run some seconds: so these
tests are a part of `make test` with a process of their own (`tests.run`). The examples of the description are what it
varies, one thing after the other, so that also what succeeds is fuzzed: invented points are never ascending.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import orjson
import pytest
import requests
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.transport import Response
from schemathesis.hooks import HookContext
from schemathesis.openapi.checks import RejectedPositiveData
from schemathesis.python import asgi
from schemathesis.schemas import BaseSchema
from starlette.types import Receive, Scope, Send

from diem.process.auth import SharedKey
from diem.process.clock import Clock, SystemClock
from diem.process.limits import RateLimit
from diem.protocol.media_types import CSV, DOCUMENT, JSON_PATCH, MERGE_PATCH, POINTS_PATCH, SERIES
from services.data.access.access import Access
from services.data.access.keys import ApiKeys, new_key
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.api import ApiOptions, make_api
from services.data.api.files import PATH as FILES
from services.data.api.guard import HOOKS, Guard
from services.data.api.page import openapi
from services.data.api.write_stream import NDJSON
from services.data.kinds import Body, Representation, kind_of
from services.data.sources.records.converter import RecordConverter
from services.data.sources.runner import SourceRunner
from services.data.sources.webhook.source import WebhookSource
from services.data.sources.webhook.table import WebhookConfig
from services.data.store.store import Store
from tests.support.file_threads import FileThreads

KEY = "a-write-key-of-the-tests"
HOOK = "shop"
PLANS = AccessPlans([AccessPlan("fuzz", per_minute=10**6, per_day=10**6)])
API_KEY, API_TEXT = new_key("the tests", "fuzz", 0)
CONDITION = re.compile(openapi()["components"]["parameters"]["IfMatch"]["schema"]["pattern"])
UNPORTABLE = re.compile("more than 64 bits|surrogate|nested")
PRINTABLE = re.compile("[ -~]{1,255}")
# To look for proxies in the environment takes a twelfth of the CPU time of these tests.
requests.sessions.get_environ_proxies = lambda *_, **__: {}  # type: ignore[attr-defined]
FACTOR = int(os.environ.get("DIEM_WALKS_FACTOR", "0"))
EXAMPLES = 12 * max(FACTOR, 1)
"""Of each operation and phase; the others, with new seeds, are for `make walks`."""


# What no schema can say is answered with 422: ascending times, the grid, the unit that an endpoint has. A deleted
# endpoint is 410, a client may accept neither representation, and a condition need not hold.
ACCEPTED = ["2xx", "304", "401", "403", "404", "406", "409", "410", "412", "422"]


class Served:
    """The application with its store: both live on schemathesis's event loop, from its startup to its shutdown."""

    def __init__(self) -> None:
        self._api: Guard | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speak the lifespan protocol, and pass requests on."""
        if scope["type"] != "lifespan":
            assert self._api is not None
            await self._api(scope, receive, send)
            return
        fast = RateLimit(1e6, 1e6)
        with TemporaryDirectory() as directory:
            store = await Store.open(f"sqlite:///{directory}/data.db")
            options = ApiOptions(Path(directory), hosts=frozenset({asgi.HOST}), rate=fast, loopback_rate=fast)
            async with store.serving():
                clock = SystemClock()
                hook = _webhook(Path(directory), clock)
                running = asyncio.create_task(SourceRunner([hook]).run(store.writer.put, None, store))
                access = Access(PLANS, ApiKeys([API_KEY]), store, clock)
                await store.writer.put([*EXAMPLES_BY_TYPE.values()])
                self._api = make_api(
                    store,
                    SharedKey(KEY),
                    lambda _endpoint: None,
                    options,
                    clock,
                    access=access,
                    files=FileThreads(),
                    hooks={hook.name: hook},
                ).app
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await access.close()
                running.cancel()
        await send({"type": "lifespan.shutdown.complete"})


def _webhook(directory: Path, clock: Clock) -> WebhookSource:
    """Return the webhook in the description, whose secret is the write key."""
    secret = directory / "hook.key"
    secret.write_text(KEY)
    secret.chmod(0o600)
    fields = {
        "type": "webhook",
        "name": HOOK,
        "scheme": "bearer",
        "endpoint": "/hooked/body",
        "secret": {"file": str(secret)},
    }
    table = WebhookConfig.model_validate(fields)
    return WebhookSource(table, clock, RecordConverter(table))


def _described() -> BaseSchema:
    config = SchemathesisConfig.from_dict(
        {
            "checks": {"positive_data_acceptance": {"expected-statuses": ACCEPTED}},
            "generation": {"max-examples": EXAMPLES, "deterministic": not FACTOR, "database": "none"},
        }
    )
    described = schemathesis.openapi.from_dict(openapi(), config=config)
    described.app = Served()
    return described


def _examples() -> dict[str, Representation]:
    """Return content of each kind that the description has an example of, by the media type of its body."""
    document = openapi()
    put = document["paths"]["/v1/data/{endpoint}"]["put"]["requestBody"]["content"]
    endpoint = f"/{document['components']['parameters']['Endpoint']['example']}"
    names = {SERIES: endpoint, DOCUMENT: "/game/42", "application/octet-stream": "/game/logo"}

    def made(media_type: str, endpoint: str) -> Representation:
        example = put[media_type].get("example")
        content = b"logo" if example is None else orjson.dumps(example)
        return kind_of(media_type).parse(endpoint, Body(content, media_type))

    return {media_type: made(media_type, endpoint) for media_type, endpoint in names.items()}


EXAMPLES_BY_TYPE = _examples()
EXISTING = [*(each.endpoint for each in EXAMPLES_BY_TYPE.values()), "/orders/7", "/game/"]
OF_BODIES = {
    **{media_type: each.endpoint for media_type, each in EXAMPLES_BY_TYPE.items()},
    **dict.fromkeys((CSV, POINTS_PATCH), EXAMPLES_BY_TYPE[SERIES].endpoint),
    **dict.fromkeys((MERGE_PATCH, JSON_PATCH), EXAMPLES_BY_TYPE[DOCUMENT].endpoint),
}
"""Existing endpoints by the media type of a body that may fit."""
schema = _described()
called, succeeded = set[str](), set[str]()
"""Operations that were called, and those that were answered with 2xx at least once."""


@schema.hook
def filter_failure(_context: HookContext, failure: Failure, case: schemathesis.Case[Any], response: Response) -> bool:
    """Return whether a failure counts: what a schema forbids may be right in HTTP, and the reverse.

    Unknown headers are ignored, and values of the others are texts: 0 is a valid key. For JSON, the query is ignored.
    Each line of a stream has an answer of its own. JSON may be refused for what parsers do not agree on. Any body may
    be a file.
    """
    headers: Any = case.headers or {}
    if case.path == FILES and isinstance(failure, RejectedPositiveData | AcceptedNegativeData):
        return "in query" in failure.message
    if isinstance(failure, RejectedPositiveData):
        condition = str(headers.get("If-Match", "*"))
        return CONDITION.fullmatch(condition) is not None and UNPORTABLE.search(response.text) is None
    if not isinstance(failure, AcceptedNegativeData):
        return True
    key = headers.get("Idempotency-Key")
    if "in header" in failure.message and (key is None or PRINTABLE.fullmatch(key)):
        return False
    if case.media_type == NDJSON:
        return False
    return not ("in query" in failure.message and case.media_type == "application/json")


@schemathesis.serializer(NDJSON)
def _line(_context: Any, value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """End the application with the tests."""
    yield
    asgi.shutdown_lifespans()


def _make_likely(case: schemathesis.Case[Any]) -> None:
    """Have half of the endpoints be one that is there, one condition at most, and times ascend on the grid."""
    place: Any = case.path_parameters
    if case.path.startswith(HOOKS):
        place["name"] = HOOK
    if case.method != "GET" and "If-None-Match" in (case.headers or {}):
        case.headers.pop("If-Match", None)
    body: Any = case.body
    named = len(place.get("endpoint", ""))
    if named % 2:
        likely = OF_BODIES.get(case.media_type or "", EXISTING[named % len(EXISTING)])
        place["endpoint"] = likely.removeprefix("/")
    if not isinstance(body, dict) or case.media_type not in {SERIES, DOCUMENT}:
        return
    for dataset in body.get("datasets", [body]):
        if isinstance(dataset, dict) and isinstance(dataset.get("points"), list) and "resolution" in dataset:
            dataset["resolution"] = "PT1H"
            for hour, point in enumerate(dataset["points"][:24]):
                point["time"] = f"2026-01-01T{hour:02}:00:00Z"


# Endpoint names are a small part of all strings: much of what is generated for them is thrown away. How long that takes
# is a matter of the machine.
@schema.parametrize()
@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.too_slow], deadline=None
)
def test_the_service_does_what_its_description_says(case: schemathesis.Case[Any]) -> None:
    if case.meta is not None and case.meta.generation.mode.is_positive:
        _make_likely(case)
    shown = API_TEXT if case.method == "GET" or case.path == "/v1/tokens" else KEY
    response = case.call_and_validate(headers={"Authorization": f"Bearer {shown}"})
    called.add(case.operation.label)
    if response.status_code in range(200, 300):
        succeeded.add(case.operation.label)


def test_every_operation_has_succeeded_at_least_once() -> None:
    assert called == succeeded
