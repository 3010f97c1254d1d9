"""The service does what its OpenAPI description says, whatever it is sent (schemathesis; the examples are bounded).

Schemathesis makes its examples while pytest collects, which would cost each worker of a run some seconds: so these
tests are a part of `make test` with a process of their own (`tests.run`).
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
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
from services.data.store import Store

KEY = "a-write-key-of-the-tests"
PLANS = AccessPlans([AccessPlan("fuzz", per_minute=10**6, per_day=10**6)])
API_KEY, API_TEXT = new_key("the tests", "fuzz", 0)
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


schema = _described()


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """End the application with the tests."""
    yield
    asgi.shutdown_lifespans()


# Endpoint names are a small part of all strings: much of what is generated for them is thrown away. How long that takes
# is a matter of the machine.
@schema.parametrize()
@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.too_slow], deadline=None
)
def test_the_service_does_what_its_description_says(case: schemathesis.Case[Any]) -> None:
    shown = API_TEXT if case.method in {"GET", "POST"} else KEY
    case.call_and_validate(headers={"Authorization": f"Bearer {shown}"})
