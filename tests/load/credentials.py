"""Tokens of load clients, requested from the Data Service with one API key, each for a user of its own."""

import asyncio
from functools import partial

import httpx

from diem.client.tokens import NoToken, TokenFunction

AT_ONCE = 8
"""Most pending requests of all clients."""


class Credentials:
    """Holder of an API key.

    Args:
        http: client of the Data Service.
        key: the API key.
        seconds: life of a token; None: that of the key's plan.
    """

    def __init__(self, http: httpx.AsyncClient, key: str, seconds: int | None = None) -> None:
        self.issued = 0
        self.seconds = seconds
        self._http = http
        self._headers = {"Authorization": f"Bearer {key}"}
        self._slots = asyncio.Semaphore(AT_ONCE)

    def function(self, user: str, prefixes: list[str] | None = None) -> TokenFunction:
        """Return the function that requests the tokens of a user, for some prefixes only if they are given."""
        return partial(self.token, subject=user, **({} if prefixes is None else {"prefixes": prefixes}))

    async def token(self, **wanted: str | list[str]) -> str:
        """Return a new token. Raises ``NoToken`` if the Data Service refuses or does not answer."""
        life = {} if self.seconds is None else {"seconds": self.seconds}
        try:
            async with self._slots:
                answer = await self._http.post("/v1/tokens", json={**wanted, **life}, headers=self._headers)
        except httpx.HTTPError as error:
            raise NoToken(type(error).__name__) from error
        if answer.status_code != httpx.codes.OK:
            raise NoToken(f"{answer.status_code} {answer.text[:300]}")
        self.issued += 1
        return str(answer.json()["token"])
