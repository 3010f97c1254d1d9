"""The transport of HTTP clients, which raises nothing but the library's own errors."""

import httpx


class HttpTransport(httpx.AsyncHTTPTransport):
    """Reports a connection that is lost in the moment in which it opens as ``httpx.ConnectError``.

    The library asks for the peer's address of a socket that uvloop has closed by then: AttributeError.
    """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises ``httpx.HTTPError``."""
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            raise httpx.ConnectError("the connection was lost while it was opened", request=request) from error
