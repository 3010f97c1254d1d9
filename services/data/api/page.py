"""Pages and descriptions: the built page, own ones, ``/config.json``, ``/openapi.json`` and ``/asyncapi.json``."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import orjson
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from diem import __version__
from diem.links.refusals import Cause
from diem.links.rest import client_address
from diem.process import security_log
from diem.process.listeners import host_name, is_loopback
from diem.process.security_log import SecurityEvent
from services.data import pages
from services.data.api.cors import ANY, AdmittedPages, Cors
from services.data.cache_control import IMMUTABLE, NO_CACHE

_OPENAPI: Final = Path(__file__).with_name("openapi.json")
_ASYNCAPI: Final = Path(__file__).with_name("asyncapi.json")
_SCHEMAS: Final = b"#/components/schemas/"

_NOT_BUILT: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>DIEM</title>
<h1>DIEM is running, but its page has not been built</h1>
<p>Run <code>make page</code> in the repository, and load this page again.</p>
<p>The data is available: <a href="v1/endpoints">catalogue</a>,
<a href="openapi.json">description of the interface</a>,
<a href="asyncapi.json">that of the WebSocket servers</a>.</p></html>
"""


def openapi(servers: Sequence[Mapping[str, Any]] = (), metadata: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of the public interface, also used for fuzzing.

    WebSocket ``servers`` and ``metadata`` services, given as for :func:`asyncapi`, have paths of their own, left out
    where there are none. Messages in answers are those of the WebSocket protocol.
    """
    document: dict[str, Any] = orjson.loads(_OPENAPI.read_bytes())
    document["info"]["version"] = __version__
    schemas, paths = document["components"]["schemas"], document["paths"]
    described = _ASYNCAPI.read_bytes().replace(_SCHEMAS, _SCHEMAS + b"Message.")
    messages = orjson.loads(described)["components"]["schemas"]
    schemas |= {f"Message.{name}": schema for name, schema in messages.items()}
    for path, entries, beside in (("/v1/updates", servers, "/ws"), ("/v1/locate", metadata, "/v1")):
        for scheme, host, prefix, variables in map(_address, entries):
            url = f"{scheme.replace('ws', 'http') or 'http'}://{host}{prefix.removesuffix(beside)}"
            paths[path]["servers"].append({"url": url, **variables})
        if not entries:
            del paths[path]
    return document


def asyncapi(servers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the AsyncAPI 3 description of the WebSocket protocol.

    ``servers`` have a ``url``, or ``port`` and ``path``: these are on the host of this service.
    """
    document: dict[str, Any] = orjson.loads(_ASYNCAPI.read_bytes())
    document["info"]["version"] = __version__
    for number, (scheme, host, path, variables) in enumerate(map(_address, servers), 1):
        server = {"host": host, "pathname": path, "protocol": scheme or "ws", **variables}
        document["servers"][f"server-{number}"] = server
    return document


def _address(entry: Mapping[str, Any]) -> tuple[str, str, str, dict[str, Any]]:
    """Return the scheme, host, path and variables of a server; on the host of this service, without a scheme."""
    if "url" in entry:
        parts = urlsplit(str(entry["url"]))
        return parts.scheme, parts.netloc, parts.path, {}
    variables = {"host": {"default": "localhost", "description": "That of this document."}}
    return "", f"{{host}}:{entry['port']}", entry["path"], {"variables": variables}


_TRUSTED_TYPES: Final = "; require-trusted-types-for 'script'; trusted-types 'none'"
"""Of the built page, which makes no markup of strings; pages of operators may."""


class _Files(StaticFiles):
    """Files that are validated by ETag alone.

    By a time, a cache would keep its newer copies when an earlier release is back, or after a clock that was ahead.
    """

    def is_not_modified(self, response_headers: Headers, request_headers: Headers) -> bool:
        """Return whether the request names the ETag; times are ignored."""
        return "if-none-match" in request_headers and super().is_not_modified(response_headers, request_headers)


class Page:
    """Serves the files of ``directory``, which may be built, rebuilt or removed while the service runs.

    A file in ``own`` overrides one at the same path in ``directory``; it is read from disk on each request.
    """

    def __init__(
        self,
        directory: Path,
        mode: str,
        servers: Sequence[Mapping[str, Any]],
        metadata: Sequence[Mapping[str, Any]] = (),
        *,
        own: Path | None = None,
        operator_url: str | None = None,
        admitted: AdmittedPages | None = None,
    ) -> None:
        self._operator_url = operator_url
        self._directory = directory
        self._own = own
        self._admitted = AdmittedPages(Cors(), None) if admitted is None else admitted
        self._servers = servers
        self._metadata = metadata
        self._files = _Files(directory=directory, html=True, check_dir=False)
        # Relative to the document: a proxy may have it below a path.
        self._openapi = orjson.dumps({**openapi(servers, metadata), "servers": [{"url": "."}]})
        self._asyncapi = orjson.dumps(asyncapi(servers))
        where = {"metadata": list(metadata)} if metadata else {}
        # A server with ``href`` is behind the same proxy as this listener.
        self._without_proxy = [{name: each[name] for name in each if name != "href"} for each in servers]
        self._config: dict[str, Any] = {"mode": mode, "servers": list(servers), "rest": "v1", **where}

    async def config(self, request: Request) -> Response:
        """``GET /config.json``: mode, WebSocket servers, metadata services, and the path of the REST interface.

        For a page that cannot connect, the answer has the reason. If that page may not read either, the answer has only
        the reason, and the page can read that.
        """
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        headers = {"Cache-Control": NO_CACHE, "Vary": "Origin"}
        document = self._config
        if "x-forwarded-for" not in request.headers:
            document = {**document, "servers": self._without_proxy}
        if origin is not None and (refusal := self._admitted.refusal(origin, host)) is not None:
            reads = self._admitted.may_read(origin)
            answer: dict[str, Any] = {"allowed": False, "reason": Cause.ORIGIN, "detail": refusal}
            document = {**document, **answer} if reads else answer
            address = client_address(request.scope)
            security_log.refuse(
                SecurityEvent.FORBIDDEN, Cause.ORIGIN, address=address, origin=origin, code=Cause.ORIGIN, detail=refusal
            )
            headers |= {} if reads else {"Access-Control-Allow-Origin": ANY}
        return Response(orjson.dumps(document), headers=headers, media_type="application/json")

    async def openapi(self, _request: Request) -> Response:
        """``GET /openapi.json``: the description of the interface."""
        return Response(self._openapi, headers={"Cache-Control": NO_CACHE}, media_type="application/json")

    async def asyncapi(self, _request: Request) -> Response:
        """``GET /asyncapi.json``: the description of the WebSocket protocol, with the servers."""
        return Response(self._asyncapi, headers={"Cache-Control": NO_CACHE}, media_type="application/json")

    async def file(self, request: Request) -> Response:
        """Any other path: a file of the page, or 404. Before the build, ``/`` shows instructions."""
        headers = self._policies(request.headers.get("host", ""))
        path: str = request.scope["path"]
        if (own := await self._own_file(path, request.url.query)) is not None:
            own.headers.update({**headers, "Cache-Control": "no-store"})
            return own
        if path == "/" and not (self._directory / "index.html").is_file():
            return HTMLResponse(_NOT_BUILT, headers={**headers, "Cache-Control": "no-store"})
        if path == "/admin" and self._operator_url is not None and is_loopback(client_address(request.scope)):
            return RedirectResponse(self._operator_url, 307, headers={**headers, "Cache-Control": "no-store"})
        headers["Content-Security-Policy"] += _TRUSTED_TYPES
        # Normalised: a URL's path may have empty segments, ignored by the file system.
        name = self._files.get_path(request.scope)
        # The operator page, built beside this one, has its own private listener.
        if f"{name}/".startswith("admin/") or path.startswith("/v1/") or not self._directory.is_dir():
            raise HTTPException(404)
        response = await self._files.get_response(name, request.scope)
        if "last-modified" in response.headers:
            del response.headers["last-modified"]
        # Names under assets/ contain a hash of the content, so these files never change.
        response.headers["Cache-Control"] = IMMUTABLE if name.startswith("assets/") else NO_CACHE
        response.headers.update(headers)
        return response

    async def _own_file(self, path: str, query: str) -> Response | None:
        """Return the own file at a path, or the redirect of a directory without the slash; None: there is none."""
        if self._own is None or path.startswith("/v1/"):
            return None
        if (file := await asyncio.to_thread(pages.find, self._own, path)) is not None:
            return FileResponse(file)
        if path.endswith("/") or await asyncio.to_thread(pages.find, self._own, f"{path}/") is None:
            return None
        # Relative to the request: a proxy may have it below a path.
        location = f"./{quote(path.rpartition('/')[2])}/" + (f"?{query}" if query else "")
        return Response(status_code=307, headers={"Location": location})

    def _policies(self, host: str) -> dict[str, str]:
        name = host_name(host)
        # With http, the page requests the reason of a refused handshake.
        sources = _sources([*self._servers, *self._metadata], name, ("http", "ws"))
        connect = " ".join(["'self'", *sources])
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; font-src 'self'; "
            f"manifest-src 'self'; connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return {
            "Content-Security-Policy": policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "X-Frame-Options": "DENY",
        }


def _sources(entries: Sequence[Mapping[str, Any]], name: str, schemes: Sequence[str]) -> list[str]:
    """Return the origins for the page's connections; entries without a url are on the host ``name``, TLS or not."""
    allowed: list[str] = []
    for entry in entries:
        if "url" in entry:
            parts = urlsplit(str(entry["url"]))
            safe = "s" if parts.scheme.endswith("s") else ""
            allowed += [f"{scheme}{safe}://{parts.netloc}" for scheme in schemes]
        else:
            allowed += [f"{scheme}{safe}://{name}:{entry['port']}" for scheme in schemes for safe in ("", "s")]
    return allowed
