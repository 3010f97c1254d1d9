"""The built page and what it needs to know: static files with their caching and policies, and ``/config.json``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from services.data.api.guard import host_name

_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_NOT_BUILT: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>DIEM</title>
<h1>DIEM is running, but its page has not been built</h1>
<p>Run <code>make run</code> in the repository, or build the folder <code>client</code>, and load this page again.</p>
<p>The data is here all the same: <a href="/v1/endpoints">catalogue</a>,
<a href="/openapi.json">description of the interface</a>.</p></html>
"""


class Page:
    """Serves ``directory``; it may be built, rebuilt or removed while the service runs."""

    def __init__(self, directory: Path, mode: str, servers: Sequence[Mapping[str, Any]]) -> None:
        self._directory = directory
        self._servers = servers
        self._files = StaticFiles(directory=directory, html=True, check_dir=False)
        self._config = orjson.dumps({"mode": mode, "servers": list(servers), "rest": "/v1"})

    async def config(self, _request: Request) -> Response:
        """``GET /config.json``: the scaling mode, the WebSocket servers, and where the REST interface is."""
        headers = {"Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}
        return Response(self._config, headers=headers, media_type="application/json")

    async def file(self, request: Request) -> Response:
        """Any other path: a file of the page, or 404."""
        headers = self._policies(request.headers.get("host", ""))
        path: str = request.scope["path"]
        if path == "/" and not (self._directory / "index.html").is_file():
            return HTMLResponse(_NOT_BUILT, headers={**headers, "Cache-Control": "no-store"})
        if path.startswith("/v1/") or not self._directory.is_dir():
            raise HTTPException(404)
        response = await self._files.get_response(self._files.get_path(request.scope), request.scope)
        # The build puts a hash of the content into the names under assets/: such a file never changes.
        response.headers["Cache-Control"] = _IMMUTABLE if path.startswith("/assets/") else "no-cache"
        response.headers.update(headers)
        # The SDK may be loaded by pages of other origins; whether they may connect is for the servers' origin rule.
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    def _policies(self, host: str) -> dict[str, str]:
        connect = " ".join(["'self'", *self._web_sockets(host_name(host))])
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
            f"manifest-src 'self'; connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return {
            "Content-Security-Policy": policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "X-Frame-Options": "DENY",
        }

    def _web_sockets(self, name: str) -> list[str]:
        allowed: list[str] = []
        for server in self._servers:
            if "url" in server:
                parts = urlsplit(str(server["url"]))
                allowed.append(f"{parts.scheme}://{parts.netloc}")
            else:
                allowed += [f"ws://{name}:{server['port']}", f"wss://{name}:{server['port']}"]
        return allowed
