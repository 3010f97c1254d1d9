"""Assembles the REST interface: routes, error handlers and the surrounding guard."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from diem.errors import DiemError
from diem.links.rest import on_defect, on_http_error, problem
from diem.process.auth import SharedKey
from diem.process.clock import Clock, SystemClock
from diem.process.limits import AddressRateLimiter, RateLimit
from services.data.access.access import Access
from services.data.access.keys import ApiKeys
from services.data.access.plans import AccessPlans
from services.data.access.write_access import WriteAccess, WriteRefused
from services.data.api import problems
from services.data.api.catalogue import Catalogue
from services.data.api.cors import AdmittedPages, Cors
from services.data.api.data import DataApi
from services.data.api.door import OwnerOf, WriteDoor
from services.data.api.fast_reads import FastReads
from services.data.api.fast_writes import FastWrites
from services.data.api.files import PATH as FILES
from services.data.api.files import FilesApi
from services.data.api.guard import HOOKS, KEY_SET, LOOPBACK_NAMES, TOKENS, USAGE, Guard, by_writer
from services.data.api.history import PREFIX as HISTORY
from services.data.api.history import HistoryApi
from services.data.api.hooks import HooksApi
from services.data.api.page import Page
from services.data.api.reads import DataReads, ReadApi
from services.data.api.requests import PREFIX
from services.data.api.status import PATH as SOURCES
from services.data.api.status import SourcesApi, SourcesStatus, UsageApi, no_sources
from services.data.api.tokens import TokensApi
from services.data.api.write_stream import StreamApi
from services.data.files.suggestion import FileWork
from services.data.kinds.prefixes import Prefixes
from services.data.limits import CONCURRENT_READS, DATASET_BYTES, READ_RATE, READ_RATE_LOOPBACK
from services.data.sources.webhook.source import WebhookSource
from services.data.store.store import Store

if TYPE_CHECKING:
    # Its HTTP client is loaded only where a topic is served.
    from services.data.api.retained import RetainedReads


class _RestConvertor(PathConvertor):
    # Unlike Starlette's own, it matches line breaks: a name with one is a bad name, not an unknown path.
    regex = r"[\s\S]*"


register_url_convertor("rest", _RestConvertor())
_ENDPOINT: Final = PREFIX + "/{endpoint:rest}"


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Options of the interface: host names, page, servers, and limits of anonymous readers."""

    page_dir: Path
    own_pages: Path | None = None
    """Directory of further files to serve."""
    operator_url: str | None = None
    """URL of the operator page, for redirecting browsers on this machine."""
    hosts: frozenset[str] = LOOPBACK_NAMES
    mode: str = "single"
    servers: Sequence[Mapping[str, Any]] = ()
    metadata: Sequence[Mapping[str, Any]] = ()
    anonymous: Callable[[str], bool] = lambda _address: True
    """Returns whether readers at an address need no key."""
    public: bool = False
    """True if readers anywhere need no key: shared caches may serve them."""
    cors_origins: frozenset[str] = frozenset()
    client_origins: frozenset[str] | None = None
    """Origins admitted by the WebSocket servers; None: unknown."""
    concurrent_reads: int = CONCURRENT_READS
    rate: RateLimit = READ_RATE
    loopback_rate: RateLimit = READ_RATE_LOOPBACK
    prefixes: Prefixes = field(default_factory=Prefixes)
    dataset_bytes: int = DATASET_BYTES


class Api(NamedTuple):
    """The application of the public listener."""

    app: Guard
    fast_path: FastReads
    fast_writes: FastWrites


def make_api(
    store: Store,
    write_key: SharedKey,
    owner_of: OwnerOf,
    options: ApiOptions,
    clock: Clock | None = None,
    *,
    access: Access | None = None,
    sources: SourcesStatus = no_sources,
    files: FileWork,
    hooks: Mapping[str, WebhookSource] | None = None,
    retained: "RetainedReads | None" = None,
) -> Api:
    """Return the application of the public listener: the routes behind their guard, and their fast paths."""
    clock = clock or SystemClock()
    access = access or Access(AccessPlans(), ApiKeys(), store, clock)
    write_access = WriteAccess(write_key, access, clock)
    door = WriteDoor(store, owner_of, options.prefixes, options.dataset_bytes)
    data = DataApi(store, Catalogue(store, clock), door, retained)
    cors = Cors(options.cors_origins)
    reads = DataReads(store, clock, cors, public=options.public)
    tokens = TokensApi(access)
    rate_limiter = AddressRateLimiter(options.rate, options.loopback_rate)
    admitted = AdmittedPages(cors, options.client_origins)
    page = Page(
        options.page_dir,
        options.mode,
        options.servers,
        options.metadata,
        own=options.own_pages,
        operator_url=options.operator_url,
        admitted=admitted,
    )

    application = Starlette(
        routes=[
            Route("/v1/endpoints", data.catalogue, methods=["GET"]),
            Route(PREFIX, by_writer(data.put_bulk), methods=["PUT"]),
            Route(PREFIX, by_writer(StreamApi(store, door).post), methods=["POST"]),
            Route(FILES, by_writer(FilesApi(store, door, files).post), methods=["POST"]),
            Route(_ENDPOINT, ReadApi(reads, retained).read, methods=["GET"]),
            Route(_ENDPOINT, by_writer(data.put), methods=["PUT"]),
            Route(_ENDPOINT, by_writer(data.patch), methods=["PATCH"]),
            Route(_ENDPOINT, by_writer(data.post), methods=["POST"]),
            Route(_ENDPOINT, by_writer(data.delete), methods=["DELETE"]),
            Route(HISTORY + "/{endpoint:rest}", HistoryApi(store).versions, methods=["GET"]),
            Route(HOOKS + "{name}", HooksApi(hooks or {}, rate_limiter, clock).post, methods=["POST"]),
            Route(USAGE, UsageApi(access, clock).usage, methods=["GET"]),
            Route(TOKENS, tokens.mint, methods=["POST"]),
            Route(KEY_SET, tokens.keys, methods=["GET"]),
            Route(SOURCES, SourcesApi(sources).sources, methods=["GET"]),
            Route("/config.json", page.config, methods=["GET"]),
            Route("/openapi.json", page.openapi, methods=["GET"]),
            Route("/asyncapi.json", page.asyncapi, methods=["GET"]),
        ],
        exception_handlers={
            DiemError: problems.on_data_error,
            WriteRefused: problems.on_write_refused,
            404: _on_unknown_path,
            405: _on_wrong_method,
            HTTPException: on_http_error,
            Exception: on_defect,
        },
    )
    # Not a route: it would match the paths above for all other methods.
    application.router.default = _other_paths(page)
    # A redirect for a missing or extra slash would point to the host in the Host header.
    application.router.redirect_slashes = False
    guard = Guard(
        application,
        hosts=options.hosts,
        rate_limiter=rate_limiter,
        write_access=write_access,
        access=access,
        anonymous=options.anonymous,
        cors=cors,
        concurrent_reads=options.concurrent_reads,
        clock=clock,
        public=options.public,
    )
    return Api(guard, FastReads(reads, guard), FastWrites(data, guard, write_access))


def _other_paths(page: Page) -> ASGIApp:
    """Return the application for paths without a route, which serves the page's files."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            detail = f"a file is only read; endpoints are written below {PREFIX}, as {PREFIX}/my/endpoint"
            raise HTTPException(405, detail, headers={"Allow": "GET, HEAD"})
        response = await page.file(Request(scope, receive))
        await response(scope, receive, send)

    return serve


async def _on_unknown_path(request: Request, _error: Exception) -> Response:
    """Answer 404 with the paths of the interface."""
    paths = sorted({each.path.replace(":rest}", "}") for each in request.app.routes})
    detail = "nothing is at this path: /v1/endpoints is the catalogue, /openapi.json describes the interface"
    return problem(404, "not_found", detail, more={"paths": paths})


async def _on_wrong_method(request: Request, error: Exception) -> Response:
    """Answer 405 with the methods of all routes of the path; Starlette lists only the first's."""
    routes = [each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE]
    if not routes:
        return await on_http_error(request, error)
    allowed = ", ".join(sorted(method for each in routes for method in each.methods))
    detail = f"{request.method} does not exist here: use {allowed}"
    return problem(405, "method_not_allowed", detail, headers={"Allow": allowed})
