"""The service does what its OpenAPI description says, whatever it is sent (schemathesis; the examples are bounded).

Schemathesis makes its examples while pytest collects, which would cost each worker of a run some seconds: so these
tests are a part of `make test` with a process of their own (`tests.run`). The examples of the description are what it
varies, one thing after the other, so that also what succeeds is fuzzed: invented points are never ascending.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import orjson
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.transport import Response
from schemathesis.hooks import HookContext
from schemathesis.python import asgi
from schemathesis.schemas import BaseSchema
from starlette.types import Receive, Scope, Send

from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.limits import RateLimit
from services.data.access.access import Access
from services.data.access.keys import ApiKeys, new_key
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.api import ApiOptions, make_api
from services.data.api.guard import Guard
from services.data.api.page import openapi
from services.data.kinds.series import Dataset, parse_single
from services.data.store import Store

KEY = "a-write-key-of-the-tests"
PLANS = AccessPlans([AccessPlan("fuzz", per_minute=10**6, per_day=10**6)])
API_KEY, API_TEXT = new_key("the tests", "fuzz", 0)
PRINTABLE = re.compile("[ -~]{1,255}")
EXAMPLES = 20
"""Of each operation and phase; twice as many are answered with no other status codes, and 12 with one fewer."""


# What no schema can say is answered with 422: ascending times, the grid, the unit that an endpoint has. A deleted
# endpoint is 410, and a client may accept neither representation.
ACCEPTED = ["2xx", "304", "401", "403", "404", "406", "409", "410", "422"]


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
                access = Access(PLANS, ApiKeys([API_KEY]), store, clock)
                await store.writer.put([EXAMPLE])
                self._api = make_api(store, SharedKey(KEY), lambda _endpoint: None, options, clock, access=access).app
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await access.close()
        await send({"type": "lifespan.shutdown.complete"})


def _described() -> BaseSchema:
    config = SchemathesisConfig.from_dict(
        {
            "checks": {"positive_data_acceptance": {"expected-statuses": ACCEPTED}},
            "generation": {"max-examples": EXAMPLES, "deterministic": True, "database": "none"},
        }
    )
    described = schemathesis.openapi.from_dict(openapi(), config=config)
    described.app = Served()
    return described


def _example() -> Dataset:
    """Return the dataset of the description's examples."""
    document = openapi()
    content = document["paths"]["/v1/data/{endpoint}"]["put"]["requestBody"]["content"]["application/json"]
    endpoint = f"/{document['components']['parameters']['Endpoint']['example']}"
    return parse_single(endpoint, orjson.dumps(content["example"]))


EXAMPLE = _example()
schema = _described()
called, succeeded = set[str](), set[str]()
"""Operations that were called, and those that were answered with 2xx at least once."""


@schema.hook
def filter_failure(_context: HookContext, failure: Failure, case: schemathesis.Case[Any], _response: Response) -> bool:
    """Return whether a failure counts: what a schema forbids may be right in HTTP.

    Unknown headers are ignored, and values of the others are texts: 0 is a valid key. For JSON, the query is ignored.
    """
    if not isinstance(failure, AcceptedNegativeData):
        return True
    headers: Any = case.headers or {}
    key = headers.get("Idempotency-Key")
    if "in header" in failure.message and (key is None or PRINTABLE.fullmatch(key)):
        return False
    return not ("in query" in failure.message and case.media_type == "application/json")


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """End the application with the tests."""
    yield
    asgi.shutdown_lifespans()


def _make_likely(case: schemathesis.Case[Any]) -> None:
    """Have half of the endpoints be the one of the examples, which is there, and times ascend on the grid."""
    place: Any = case.path_parameters
    body: Any = case.body
    if len(place.get("endpoint", "")) % 2:
        place["endpoint"] = EXAMPLE.endpoint.removeprefix("/")
    if not isinstance(body, dict):
        return
    for dataset in body.get("datasets", [body]):
        if "points" in dataset:
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
    shown = API_TEXT if case.method in {"GET", "POST"} else KEY
    response = case.call_and_validate(headers={"Authorization": f"Bearer {shown}"})
    called.add(case.operation.label)
    if response.status_code in range(200, 300):
        succeeded.add(case.operation.label)


def test_every_operation_has_succeeded_at_least_once() -> None:
    assert called == succeeded
