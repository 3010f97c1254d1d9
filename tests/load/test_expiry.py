"""What is reported of tokens that expire, and how the load clients get tokens of another life."""

import httpx
import orjson
import pytest

from tests.load.credentials import Credentials
from tests.load.injection.expiry import Window, figures_of, goals_of

EXPIRING = Window(60.0, 200, 0, {"data": 9.0, "servers": 3.0})
CALM = Window(30.0, 0, 100, {"data": 2.0, "servers": 1.0})


def test_cost_of_a_refresh_is_what_the_window_took_more_than_one_of_its_length_without_refreshes() -> None:
    assert figures_of(EXPIRING, CALM)["cpu_ms_per_refresh"] == {"data": 25.0, "servers": 5.0}


@pytest.mark.parametrize(
    ("expiring", "calm", "missed"),
    [
        (EXPIRING, CALM, []),
        (EXPIRING._replace(not_refreshed=1), CALM, ["tokens expire, clients that replaced none"]),
        (EXPIRING._replace(refreshed=99), CALM, ["tokens expire, refreshes on open connections"]),
        (EXPIRING, CALM._replace(refreshed=1), ["tokens expire, refreshes in the window without expiry"]),
    ],
    ids=["all replaced", "one did not", "too few refreshes", "refreshes in both windows"],
)
def test_every_client_must_replace_its_token_in_the_first_window_only(
    expiring: Window, calm: Window, missed: list[str]
) -> None:
    assert [goal.name for goal in goals_of(expiring, calm, 100) if not goal.reached] == missed


async def test_tokens_have_the_life_that_was_set_last() -> None:
    requested = []

    def issue(request: httpx.Request) -> httpx.Response:
        requested.append(orjson.loads(request.content))
        return httpx.Response(200, json={"token": "t"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(issue), base_url="http://data") as http:
        credentials = Credentials(http, "key", 60)
        await credentials.token()
        credentials.seconds = None
        await credentials.token()
    assert requested == [{"seconds": 60}, {}]
