"""What a transport raises, against a network that loses connections when it likes."""

from typing import Any

import httpcore
import httpx
import pytest

from diem.process.http_transport import HttpTransport


class Stream(httpcore.AsyncMockStream):
    """anyio's stream whose socket uvloop has closed: reading its peer's address fails so."""

    def get_extra_info(self, info: str) -> Any:
        raise AttributeError(f"'NoneType' object has no attribute 'getpeername' ({info})")


class Network(httpcore.AsyncMockBackend):
    async def connect_tcp(self, *_arguments: Any, **_options: Any) -> httpcore.AsyncNetworkStream:
        return Stream([])


async def test_a_connection_lost_while_it_opens_is_an_error_of_the_connection() -> None:
    transport = HttpTransport()
    transport._pool = httpcore.AsyncConnectionPool(network_backend=Network([]))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(httpx.ConnectError, match="lost while it was opened"):
            await http.get("http://localhost/")
