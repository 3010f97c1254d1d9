"""Transport of HTTP clients that raises only the library's own errors."""

import sys
from importlib.util import find_spec

import httpx

if "sniffio" not in sys.modules and find_spec("sniffio") is None:
    # httpcore searches the disk for it in vain, several times a request: a fifth of the time of one.
    sys.modules["sniffio"] = None  # type: ignore[assignment]  # so that the import fails at once


class HttpTransport(httpx.AsyncHTTPTransport):
    """Reports a connection lost while opening as ``httpx.ConnectError``.

    The library reads the peer address of a socket already closed by uvloop, an AttributeError.
    """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises ``httpx.HTTPError``."""
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            raise httpx.ConnectError("the connection was lost while it was opened", request=request) from error
