"""Runs the Data Service: store, sources, the public REST server and the internal listener with the feed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from diem.errors import ConfigurationError
from diem.links.connection_limits import ConnectionLimits, address_bound
from diem.links.feed_server import FeedServer
from diem.links.handshakes import HandshakeLimits
from diem.links.health import health_service
from diem.links.http_server import AsgiFallback, make_server
from diem.links.service import freeze_heap, internal_service, run_until
from diem.process.auth import SharedKey
from diem.process.clock import Clock, SystemClock
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.process.limits import RateLimit
from diem.process.listeners import PortInUse, bind_all, check_bind, is_loopback
from diem.process.modes import Mode
from diem.process.private_files import make_private_directory
from diem.process.settings import secret_files
from diem.process.tls import LinkTls, server_tls
from diem.process.tracing import TracedUpdates
from diem.protocol import interest
from diem.traffic.recording import recording_accesses
from services.data.access.access import Access
from services.data.access.key_file import KeyDocumentFile
from services.data.access.plans import AccessPlans
from services.data.access.signing import SigningKeys
from services.data.api import ApiOptions, make_api
from services.data.api.guard import LOOPBACK_NAMES
from services.data.api.keys import internal_app
from services.data.api.refused_writes import endpoint_route
from services.data.api.sources import source_routes
from services.data.errors import StoreInUse, StoreUnavailable
from services.data.files.reader import FileReader
from services.data.interest import InterestPort
from services.data.limits import HistoryLimits, InlineLimits, StoreLimits, WriterLimits
from services.data.pages import check_pages
from services.data.report import DataReport
from services.data.settings import Settings
from services.data.sources import config
from services.data.sources.runner import SourceRunner
from services.data.sources.source import StoredState
from services.data.store import MARK_FILE
from services.data.store.store import Store
from services.data.store.traced_writes import WriteTracer

if TYPE_CHECKING:
    from services.data.api.retained import RetainedReads
    from services.data.publisher import Publisher

_logger = structlog.get_logger(__name__)

PUBLISHER: Final = "services.data.publisher"
"""Loaded only with Kafka, because it loads Kafka's client."""
STANDBY_RETRY_S: Final = 0.5
SWITCH_S: Final = 1e-4
"""Longest wait of another thread for the interpreter of a busy event loop; Python's default is 5 ms. The store's thread
needs it some dozen times per commit."""


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve data, accept changes and send them to readers of the feed, until stopped.

    Raises:
        DiemError: a file, a port or the store cannot be used.
    """
    sys.setswitchinterval(SWITCH_S)
    clock = SystemClock()
    if settings.own_pages is not None:
        check_pages(settings.own_pages, _private_paths(settings), "DIEM_DATA_OWN_PAGES")
    write_key = SharedKey.load(settings.write_key_file, missing=_write_key_remedy(settings.write_key_file))
    internal_key = KeyRing.load(settings.internal_key_file)
    configured = _configured(settings)
    # Files of users do not wait for those of sources, nor these for them.
    source_files, user_files = FileReader(), FileReader()
    sources = SourceRunner.configured(configured, clock, settings.dataset_bytes, convert=source_files.convert)
    check_bind(settings.host, authenticated=True, what="public listener")
    tls = server_tls(settings, life.on_reload)
    public = bind_all(settings.host, settings.port, reserved=settings.supervised)
    if settings.standby:
        # Refused connections make a load balancer move on; unaccepted ones would run into timeouts.
        for listener in public:
            listener.close()
    store = await _open_store(settings, _store_limits(settings, configured), life, clock, internal_key)
    if store is None:
        return
    if settings.standby:
        public = bind_all(settings.host, settings.port, reserved=settings.supervised)
    signing, traces = SigningKeys(settings.token_key_dir, clock), _traces(settings, life, store)
    # After everything that may fail with one line: this logs the keys, and creates the first.
    signing.load()
    publisher = _publisher(settings, store, traces)
    access = await Access.open(AccessPlans.configured(configured.plan), store, clock, signing)
    owner_of, options = _owner_of(settings, sources), _api_options(settings, configured)
    api = make_api(
        store,
        write_key,
        owner_of,
        options,
        clock,
        access=access,
        sources=sources.public_status,
        files=user_files,
        hooks=sources.webhooks,
        retained=_retained(settings, internal_key),
    )
    feed, interests = FeedServer(store, traces=traces), InterestPort(sources.by_interest)
    store.index.subscribe(feed.changed)
    report = DataReport(settings.mode, life, store, sources, publisher, state_dir=settings.state_dir)
    server = make_server(
        api.app,
        limits=_connection_limits(settings),
        privileged=api.app.is_privileged,
        fast_path=api.fast_path,
        fast_writes=api.fast_writes,
        is_writing=lambda: store.writer.in_progress > 0,
        drain_s=settings.drain_seconds / 2,
        trusted_proxies=settings.trusted_proxies,
        tls=tls,
        handshakes=HandshakeLimits(
            settings.connections_per_address,
            settings.connections_per_address_loopback,
            trusted=settings.trusted_proxies,
        ),
    )
    administration = AsgiFallback(
        internal_app(access, (*source_routes(sources, store), endpoint_route(store, owner_of))), "/v1"
    )
    async with (
        store.serving(),
        recording_accesses(settings, access.usage.drain),
        source_files,
        user_files,
        AsyncExitStack() as closing,
    ):
        closing.push_async_callback(access.close)
        internal = await closing.enter_async_context(
            internal_service(
                settings,
                internal_key,
                on_reload=life.on_reload,
                ready=report.why_not_ready,
                status=report.status,
                samples=lambda: [*report.samples(feed), *api.app.samples(), *sources.samples(), *access.samples()],
                channels={"/feed": feed, interest.PATH: interests},
                fallback=administration,
            )
        )
        closing.callback(feed.stop)
        await closing.enter_async_context(health_service(settings, report.why_not_ready))
        _logger.info("serving", host=settings.host, port=public[0].getsockname()[1], internal_port=internal.port)
        freeze_heap()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.run_until(life.stopping, *public))

            async def drain() -> None:
                await serving
                await administration.drain(settings.drain_seconds / 4)

            # Cancelled before the store closes; by then everything committed has been sent to readers.
            stored = StoredState(
                store.id, settings.state_dir / "sources", store.reader.current, store.index.below, store.writer.delete
            )
            works = [
                sources.run(store.writer.put, stored, store),
                interests.run(),
                feed.run(),
                store.wait_writer(),
                access.last_use.run(),
            ]
            works.append(report.measure_disk())
            works.append(KeyDocumentFile(settings.token_document_file, access.tokens.document).run())
            if publisher is not None:
                store.index.subscribe(publisher.changed)
                works.append(publisher.run())
            await run_until(life.stopping, works, drain)


def _write_key_remedy(path: Path) -> str:
    return (
        "copy it from where the Data Service ran before; a new system gets its keys from `diem up`, or from "
        f"`diem keys internal {path.parent}`"
    )


async def _open_store(
    settings: Settings, limits: StoreLimits, life: Lifecycle, clock: Clock, key: KeyRing
) -> Store | None:
    """Open the store; a stand-by waits while another process has it. None if stopped meanwhile."""
    # With PostgreSQL the mark is the first thing there.
    make_private_directory(settings.state_dir)
    url, mark = settings.database_url.get_secret_value(), settings.state_dir / MARK_FILE
    try:
        # A stand-by is live at once, and waits indefinitely.
        return await Store.open(url, clock=clock, limits=limits, mark=mark, wait=not settings.standby)
    except StoreInUse:
        if not settings.standby:
            raise
    if settings.kafka_bootstrap_servers is not None:
        # Import now: after an upgrade in place, an old stand-by would load new modules.
        import_module(PUBLISHER)
    async with _standing_by(settings, life, key):
        _logger.info("standing by: another process has the store")
        await life.pause(STANDBY_RETRY_S)
        while not life.stopping.is_set():
            # A waiting stand-by also waits for an unreachable database.
            with suppress(StoreInUse, StoreUnavailable):
                return await Store.open(url, clock=clock, limits=limits, mark=mark, wait=False)
            await life.pause(STANDBY_RETRY_S)
    return None


@asynccontextmanager
async def _standing_by(settings: Settings, life: Lifecycle, key: KeyRing) -> AsyncIterator[None]:
    """Serve health, and a status without a store, while the block runs."""

    def why_not_ready() -> str:
        return "draining" if life.stopping.is_set() else "standing by: another process has the store"

    async with health_service(settings, why_not_ready), AsyncExitStack() as closing:
        service = internal_service(
            settings,
            key,
            on_reload=life.on_reload,
            ready=why_not_ready,
            status=lambda: {"mode": settings.mode, "ready": False, "live": False, "standby": True},
            samples=tuple,
        )
        try:
            await closing.enter_async_context(service)
        except PortInUse as error:
            # The port of the other process on this machine, to be taken over for its feed readers.
            _logger.info("no internal listener while standing by", reason=str(error))
        yield


def _private_paths(settings: Settings) -> list[Path]:
    """Return files and directories with secrets, including certificates, which may contain their key."""
    kafka = (settings.kafka_sasl_password_file, settings.kafka_key_file or settings.kafka_certificate_file)
    maybe = (settings.config, settings.tls_key or settings.tls_certificate, *kafka)
    own = (settings.state_dir, settings.internal_key_file, settings.write_key_file, settings.token_key_dir)
    return [*own, *secret_files(Settings).values(), *(path for path in maybe if path is not None)]


def _configured(settings: Settings) -> config.Config:
    """Return the configuration, without sources where a topic is served. Raises ``ConfigurationError``."""
    if settings.kafka_topic is None:
        return config.load(settings.config or config.default_file())
    configured = config.Config() if settings.config is None else config.load(settings.config)
    if configured.source:
        raise ConfigurationError(f"{settings.config}: a topic is served as it is, without [[source]] tables beside it")
    return configured


def _retained(settings: Settings, key: KeyRing) -> "RetainedReads | None":
    if settings.kafka_topic is None:
        return None
    from services.data.api.retained import RetainedReads  # noqa: PLC0415  # only where there is a topic

    partitioned, tls = Mode(settings.mode).partitioned, LinkTls(settings.internal_ca_file)
    return RetainedReads(settings.retained_by, key, tls, partitioned=partitioned)


def _owner_of(settings: Settings, sources: SourceRunner) -> Callable[[str], str | None]:
    """Return the owner of an endpoint, whom nobody else may write: where a topic is served, always the topic."""
    topic = settings.kafka_topic
    return sources.claims.owner_of if topic is None else lambda _endpoint: f"topic {topic}"


def _traces(settings: Settings, life: Lifecycle, store: Store) -> TracedUpdates | None:
    """Trace writes, and return the contexts of their updates; None: they are not traced."""
    if life.tracer is None:
        return None
    traces = TracedUpdates(life.tracer)
    store.writer.tracer = WriteTracer(traces, settings.trace_rate)
    return traces


def _publisher(settings: Settings, store: Store, traces: TracedUpdates | None) -> "Publisher | None":
    if settings.kafka_bootstrap_servers is None:
        return None
    from services.data.publisher import Publisher  # noqa: PLC0415  # see PUBLISHER

    return Publisher(store, settings.kafka(), settings.hot, traces)


def _store_limits(settings: Settings, configured: config.Config) -> StoreLimits:
    return StoreLimits(
        busy_timeout_s=settings.busy_timeout,
        cache_bytes=settings.cache_bytes,
        writer=WriterLimits(
            max_endpoints=settings.max_endpoints,
            history=HistoryLimits(settings.history_versions, settings.history_days),
            published=settings.kafka_bootstrap_servers is not None,
        ),
        inline=InlineLimits(
            settings.inline_bytes,
            {each.prefix: each.max_bytes for each in configured.inline},
            settings.retained_data_bytes,
        ),
    )


def _connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        settings.connections,
        settings.reserved_connections,
        per_address=address_bound(
            settings.connections_per_address,
            loopback=settings.connections_per_address_loopback,
            trusted=settings.trusted_proxies,
        ),
    )


def _anonymous_readers(settings: Settings) -> Callable[[str], bool]:
    """Return the rule by address; auto: if bind, peer and header fields all indicate a local reader."""
    if settings.anonymous_reads == "auto" and is_loopback(settings.host):
        return is_loopback
    return lambda _address: settings.anonymous_reads == "on"


def _api_options(settings: Settings, configured: config.Config) -> ApiOptions:
    return ApiOptions(
        page_dir=settings.page_dir,
        own_pages=settings.own_pages,
        operator_url=settings.operator_url,
        hosts=LOOPBACK_NAMES | {settings.host} | frozenset(settings.hosts),
        mode=settings.mode,
        servers=settings.websocket_servers,
        metadata=settings.metadata_services,
        anonymous=_anonymous_readers(settings),
        public=settings.anonymous_reads == "on",
        cors_origins=frozenset(settings.cors_origins),
        client_origins=None if settings.client_origins is None else frozenset(settings.client_origins),
        concurrent_reads=settings.concurrent_reads,
        rate=RateLimit(settings.read_rate, settings.read_burst),
        loopback_rate=RateLimit(settings.read_rate_loopback, settings.read_burst_loopback),
        prefixes=configured.prefixes,
        dataset_bytes=settings.dataset_bytes,
    )
