"""The HTTP application of the operator page: sign-in, the page's files, and its document; read-only."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deploy.admin.sessions import SESSION_S, Sessions, TooManyAttempts, WrongKey
from deploy.topology.public_address import LOOPBACK_NAMES
from diem.links.rest import BodyTooLarge, client_address, on_defect, on_http_error, problem, read_body
from diem.process import security_log
from diem.process.listeners import host_name
from diem.process.security_log import SecurityEvent
from services.data.cache_control import NO_CACHE, PRIVATE

PATH: Final = "/admin"
LOGIN: Final = f"{PATH}/login"
LOGOUT: Final = f"{PATH}/logout"
DOCUMENT: Final = f"{PATH}/status.json"
MAX_FORM_BYTES: Final = 8192
FIELDS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not no-referrer: with it, browsers send "Origin: null" with forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOT_BUILT: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>DIEM operator</title>
<h1>The operator page has not been built</h1>
<p>Run <code>make page</code> in the repository and load this page again. <code>diem status</code> shows the same.</p>
</html>
"""


def make_app(pages: Path, sessions: Sessions, latest: Callable[[], Awaitable[bytes]]) -> ASGIApp:
    """Return the application.

    Args:
        pages: directory of the built page; it may be built, rebuilt or removed meanwhile.
        sessions: the open sessions.
        latest: returns the document as JSON.
    """
    handlers = _Handlers(pages, sessions, latest)
    return _Guard(
        Starlette(
            routes=[
                Route("/", handlers.root, methods=["GET"]),
                Route(PATH, handlers.root, methods=["GET"]),
                Route(f"{PATH}/", handlers.page, methods=["GET"]),
                Route(LOGIN, handlers.login_form, methods=["GET"]),
                Route(LOGIN, handlers.log_in, methods=["POST"]),
                Route(LOGOUT, handlers.log_out, methods=["POST"]),
                Route(DOCUMENT, handlers.document, methods=["GET"]),
                Mount(f"{PATH}/assets", StaticFiles(directory=pages / "assets", check_dir=False)),
            ],
            exception_handlers={HTTPException: on_http_error, Exception: on_defect},
        )
    )


class _Handlers:
    """The routes."""

    def __init__(self, pages: Path, sessions: Sessions, latest: Callable[[], Awaitable[bytes]]) -> None:
        self._pages = pages
        self._sessions = sessions
        self._latest = latest

    # All redirects are relative: a proxy may have the page below a path.

    async def root(self, _request: Request) -> Response:
        """``GET /`` and ``GET /admin``: redirect to the page, the same as on the main address."""
        return RedirectResponse("admin/", 307)

    async def page(self, request: Request) -> Response:
        """``GET /admin/``: the page, or the sign-in."""
        if not self._is_signed_in(request):
            return RedirectResponse("login", 303)
        return _file(self._pages / "index.html")

    async def login_form(self, _request: Request) -> Response:
        """``GET /admin/login``: the form."""
        return _file(self._pages / "login.html")

    async def log_in(self, request: Request) -> Response:
        """``POST /admin/login``: exchange the key for a session."""
        try:
            body = await read_body(request, MAX_FORM_BYTES)
        except BodyTooLarge as error:
            return problem(413, "too_large", str(error))
        key = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0]
        try:
            token = self._sessions.open(key.strip())
        except WrongKey:
            _record(request, 401)
            return RedirectResponse("login#wrong", 303)
        except TooManyAttempts:
            _record(request, 429)
            return RedirectResponse("login#later", 303)
        answer = RedirectResponse(".", 303)
        # Without a path it is for the one of the browser's request, without ``/login``.
        answer.set_cookie(_cookie(request), token, SESSION_S, path=None, httponly=True, samesite="strict")
        return answer

    async def log_out(self, request: Request) -> Response:
        """``POST /admin/logout``: end the session, not only its cookie."""
        self._sessions.close(_token(request))
        answer = RedirectResponse("login", 303)
        answer.set_cookie(_cookie(request), "", 0, path=None, httponly=True, samesite="strict")
        return answer

    async def document(self, request: Request) -> Response:
        """``GET /admin/status.json``: the document that the page shows."""
        if not self._is_signed_in(request):
            return problem(401, "signed_out", f"sign in at {LOGIN}")
        return Response(await self._latest(), media_type="application/json")

    def _is_signed_in(self, request: Request) -> bool:
        return self._sessions.is_open(_token(request))


def _token(request: Request) -> str:
    return request.cookies.get(_cookie(request), "")


def _cookie(request: Request) -> str:
    """Return the name of the cookie: browsers send a host's cookies to all its ports, so it contains the port number.

    It is the browser's port, which differs from ours behind a tunnel.
    """
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"diem_operator_{port}" if port.isascii() and port.isdigit() else "diem_operator"


def _file(path: Path) -> Response:
    if not path.is_file():
        return HTMLResponse(_NOT_BUILT, headers={"Cache-Control": "no-store"})
    return FileResponse(path, headers={"Cache-Control": NO_CACHE})


def _record(request: Request, code: int) -> None:
    address = client_address(request.scope)
    security_log.record(SecurityEvent.WRONG_OPERATOR_KEY, address=address, code=code, detail=LOGIN)


class _Guard:
    """Middleware around the whole application: refuses foreign host names and pages.

    A page of another name that points here (DNS rebinding) is refused by ``Host``. A page of another port of this
    machine, whose requests carry the cookie, is refused by ``Sec-Fetch-Site`` and ``Origin``; a form must have an
    ``Origin``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = _refusal(request)

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message["headers"]))
                headers.update(FIELDS)
                if scope["path"].startswith(f"{PATH}/assets/") and message["status"] == 200:
                    # Names have a hash of the content.
                    headers["Cache-Control"] = PRIVATE
                else:
                    headers.setdefault("Cache-Control", "no-store")
                message["headers"] = headers.raw
            await send(message)

        await (refusal or self._app)(scope, receive, completed)


def _refusal(request: Request) -> Response | None:
    hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
    if len(hosts) != 1 or host_name(hosts[0]) not in LOOPBACK_NAMES:
        return problem(400, "host", f"this page is at http://localhost and a port, not at {hosts[:1]}")
    own = f"http://{hosts[0].strip().lower()}"
    if any(origin.lower() != own for origin in origins) or (request.method == "POST" and len(origins) != 1):
        return problem(403, "origin", "pages of other origins may not use this one")
    # A link on another page may lead here; the cookie is not sent with it.
    if request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"} and not _is_navigation(request):
        return problem(403, "origin", "pages of other origins may not use this one")
    return None


def _is_navigation(request: Request) -> bool:
    return request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
