"""nginx in front of every server slot: its configuration (docs/reliability.md 3.3, 3.4), and its command line.

The configuration is rendered once, including unused slots: a reload would cut every open client at
``worker_shutdown_timeout``. A slot without a server refuses at once (on this machine in well under 0.1 ms) and is
passed over. A probe goes before each client, so that none waits for a server that hangs. Needs nginx-config-builder, an
extra: import it only for modes behind nginx.
"""

import contextlib
import os
import resource
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from nginx.config.api import Block, Config
from nginx.config.api.options import KeyOption, KeyValueOption, KeyValuesMultiLines

from deploy.topology import Clients, Mode, Ports
from diem.errors import ConfigurationError
from diem.process.modes import all_of
from diem.process.tls import CIPHERS, HSTS
from services.data.cache_control import IMMUTABLE

PER_ADDRESS: Final = 50
CONNECTS_PER_S: Final = 50
DATA_READS: Final = 6
"""Concurrent requests for data of one browser per origin, as from all pages of an address after an update."""
READS_PER_S: Final = 20
"""Reads without a key, possibly cached, of an address per allowed client: the Data Service's limit of one address."""
MAX_WORKERS: Final = 4
MAX_CONNECTIONS: Final = 32_768
"""Connections of one worker, which allocates about 400 bytes for each at its start."""
RESERVED_FILES: Final = 64
"""A worker's descriptors besides connections: listeners, logs, epoll."""
BODY_BUFFER_BYTES: Final = 16 * 1024
"""Timeout of a request's body in nginx, passed on while it arrives, so that the Data Service refuses or ends it."""
BODY_BYTES: Final = 128 * 1024
"""Longest body of a request, except of data: the Data Service bounds that while it arrives (DIEM_DATASET_BYTES)."""

MAX_UPDATES_BODY_BYTES: Final = 128 * 1024
POLL_TIMEOUT_S: Final = 35
"""Longest silence of a server that has a poll; it answers after 25 s at the latest."""
CONNECT_TIMEOUT_MS: Final = 300
"""Connect timeout to a server: its kernel answers within a network round trip, a dead host never."""
PROBE_S: Final = 2
"""Timeout of a probe: a slower server hangs, or is too busy for another client."""
PROBES_MS: Final = 4500
"""Time for probing further servers: up to three hung ones."""
FAILED_S: Final = 5
"""Time that a silent or refusing server is skipped, longer than the probes that may follow its own."""
WEIGHT: Final = 10_000
"""Weight of the first slot, increasing by one: relevant only for equal numbers of connections."""

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Size of the cache; every 10 s, the cache manager removes the least recently used responses beyond it."""
CACHED: Final = "10m"
"""Time that a response is valid, and kept unused."""

_RELAYED: Final = '"1.1 relay"'
"""Via field of a request forwarded by a proxy other than the front proxies."""

Content = tuple[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class NginxPlan:
    """Input of the configuration.

    ``slots`` are addresses with ports of all possible servers, ``data`` those of the Data Service and its stand-bys.
    ``directory`` is nginx's own.

    ``per_address`` limits the WebSocket connections of one address, and its REST requests in progress (of data, which
    costs least, ``DATA_READS`` times as many); ``connects_per_s`` the rate at which it may open WebSocket connections
    (with a burst of twice as many); clients of this machine have these limits only with ``limit_loopback``.
    ``open_files`` is the limit of open files of a worker. ``front_proxies`` are networks of proxies in front of nginx,
    whose X-Forwarded-For is believed. ``listen`` is the address to listen on, ``both_loopbacks`` adds ::1, ``reserved``
    is whether a supervisor keeps the port from other users (see ``PortReservations.protect``). ``certificate`` is that
    of clients (None: no TLS), with its ``key`` in a file of its own or in the same. ``cache`` is the directory for
    cached responses (None: no cache), see :func:`new_cache`; ``hosts`` are the names in Host, without a port, whose
    requests it may answer.
    """

    directory: Path
    port: int
    data: tuple[str, ...]
    slots: tuple[str, ...]
    per_address: int = PER_ADDRESS
    connects_per_s: int = CONNECTS_PER_S
    limit_loopback: bool = True
    workers: int = 1
    open_files: int = 1024
    front_proxies: tuple[str, ...] = ()
    listen: str = "127.0.0.1"
    reserved: bool = False
    both_loopbacks: bool = False
    certificate: Path | None = None
    key: Path | None = None
    cache: Path | None = None
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, mode: Mode, clients: Clients, ports: Mapping[str, Ports], directory: Path, **own: Any) -> Self:  # noqa: ANN401
        """Return the plan of a mode with processes at these ports; ``own`` are further fields, and other values."""
        public = clients.public
        per_address = clients.per_address or PER_ADDRESS
        found: dict[str, Any] = {
            "port": ports["nginx"].public or 0,
            "data": tuple(each.public_address for each in all_of("data", ports)),
            "slots": tuple(each.public_address for each in all_of(mode.edge, ports)),
            "per_address": per_address,
            # As many as may be connected at once may also reconnect at once, after an outage.
            "connects_per_s": max(CONNECTS_PER_S, per_address),
            "front_proxies": clients.front_proxies,
            "listen": public.listen,
            "certificate": public.certificate,
            "key": public.key,
            "hosts": public.page_hosts,
        }
        return cls(directory, **{**found, **own})


def render(plan: NginxPlan) -> str:
    """Return the whole configuration file; pure."""
    return f"{_top(plan)!r}\n".lstrip("\n")


def connections(open_files: int) -> int:
    """Return the connections of one worker. A client uses two: its own and the one to its server."""
    return max(64, min(open_files - RESERVED_FILES, MAX_CONNECTIONS))


def _top(plan: NginxPlan) -> Any:  # noqa: ANN401  # the library has no types
    return Config(
        *_options(
            ("daemon", "off"),
            ("pid", _quoted(plan.directory / "nginx.pid")),
            # Standard error is the bounded log file of ``diem up``.
            ("error_log", "stderr warn"),
            ("worker_processes", str(max(1, min(plan.workers, MAX_WORKERS)))),
            ("worker_rlimit_nofile", str(connections(plan.open_files) + RESERVED_FILES)),
            # A new certificate starts new workers; the old ones keep their clients until those leave.
            ("worker_shutdown_timeout", "60s" if plan.certificate is None else "12h"),
        ),
        _block("events", ("worker_connections", str(connections(plan.open_files)))),
        _http(plan),
    )


def _http(plan: NginxPlan) -> Any:  # noqa: ANN401
    return _block(
        "http",
        ("access_log", "off"),
        # Not warn: it would log query strings, and a line for each attempt at an unused slot.
        ("error_log", "stderr crit"),
        ("server_tokens", "off"),
        *_temporary_paths(plan.directory),
        ("limit_conn_zone", [f"{_address(plan)} zone=clients:10m", f"{_address(plan)} zone=readers:10m"]),
        ("limit_req_zone", _request_zones(plan)),
        ("limit_conn_status", "429"),
        ("limit_req_status", "429"),
        # No regular expressions in maps: CVE-2026-42533.
        _block("map $http_upgrade $connection_upgrade", ("default", "upgrade"), ("''", "close")),
        *_forwarding(plan.front_proxies),
        *([] if plan.limit_loopback else _limited_address()),
        *([] if plan.cache is None else _cache(plan, plan.cache)),
        _block(
            "upstream servers",
            ("zone", "servers 256k"),  # shared by all workers
            "least_conn",
            # Among equals nginx would rotate: the probed server must be the one used.
            (
                "server",
                [
                    f"{slot} weight={WEIGHT + number} max_fails=1 fail_timeout={FAILED_S}s"
                    for number, slot in enumerate(plan.slots)
                ],
            ),
        ),
        _block(
            # The same without marks, if all are marked as failed (ADR 5).
            "upstream all_servers",
            ("zone", "all_servers 256k"),
            "least_conn",
            ("server", [f"{slot} max_fails=0" for slot in plan.slots]),
        ),
        _block(
            "upstream data",
            ("server", _data_servers(plan.data)),
            ("keepalive", "16"),
            ("keepalive_timeout", "20s"),  # below the Data Service's 30 s, so that it never closes first
        ),
        _server(plan),
    )


def _data_servers(data: tuple[str, ...]) -> list[str]:
    """Return the servers of REST: a stand-by, refusing connections until it has the store, is tried once a second.

    A single one is never marked as failed.
    """
    failures = "max_fails=0" if len(data) == 1 else "max_fails=1 fail_timeout=1s"
    return [f"{address} {failures}" for address in data]


def _forwarding(front_proxies: tuple[str, ...]) -> list[Content | Any]:
    """Return the directives to trust front proxies, and mark requests forwarded by any other proxy (``$via``).

    Servers need the mark because the fields of such requests are overwritten.
    """
    fields = '"$http_x_forwarded_for$http_forwarded$http_via"'
    if not front_proxies:
        return [_block(f"map {fields} $via", ("default", _RELAYED), ("''", '""'))]
    return [
        ("set_real_ip_from", front_proxies),
        ("real_ip_header", "X-Forwarded-For"),
        ("real_ip_recursive", "on"),
        _block("geo $realip_remote_addr $front", ("default", "other"), *((net, "front") for net in front_proxies)),
        _block("map $http_x_forwarded_for $addressed", ("default", "addressed"), ("''", "bare")),
        _block(f"map {fields} $forwarded", ("default", "forwarded"), ("''", "direct")),
        _block(
            'map "$front $addressed $forwarded" $via',
            ("default", _RELAYED),
            ('"front addressed forwarded"', '""'),
            ('"front bare direct"', '""'),
            ('"other bare direct"', '""'),
        ),
    ]


def _address(plan: NginxPlan) -> str:
    """Return the variable used as the address in limits; if empty, there is no limit."""
    return "$network" if plan.limit_loopback else "$limited_address"


def _network() -> list[Content | Any]:
    """Return the directives for ``$network``: a client's address, for IPv6 its /64, the size of one network.

    Extracting part of an address requires a regular expression. It is not in a map (CVE-2026-42533); and neither
    ``rewrite`` nor numbered captures are used anywhere here (CVE-2026-42945, CVE-2026-9256). An address begins with
    four groups, or with fewer before ``::``, which stands for the rest of them, except after one group: there some
    networks share a limit. One that begins with ``::`` is IPv4 or this machine.
    """
    return [
        ("set", "$network $binary_remote_addr"),
        _block(
            'if ($remote_addr ~ "^(?<prefix>(?:[0-9a-f]+:){4}|(?:[0-9a-f]+:){1,3}:)")',
            ("set", "$network $prefix"),
        ),
    ]


def _limited_address() -> list[Any]:
    """Return the directives that exempt local clients from limits, except those forwarded by another proxy."""
    return [
        _block("geo $here", ("default", "elsewhere"), ("127.0.0.0/8", "here"), ("::1/128", "here")),
        _block('map "$here$via" $limited_address', ("default", "$network"), ('"here"', '""')),
    ]


def _request_zones(plan: NginxPlan) -> list[str]:
    connects = f"{_address(plan)} zone=connects:10m rate={plan.connects_per_s}r/s"
    reads = f"$keyless zone=reads:10m rate={READS_PER_S * plan.per_address}r/s"
    return [connects] if plan.cache is None else [connects, reads]


def _caching(plan: NginxPlan) -> Sequence[Content]:
    if plan.cache is None:
        return ()
    # The Data Service does not see reads answered from the cache.
    return (*_CACHING, ("limit_req", f"zone=reads burst={2 * READS_PER_S * plan.per_address} nodelay"))


def _cache(plan: NginxPlan, directory: Path) -> list[Content | Any]:
    """Return the cache of named versions, which never change, and ``$data_cache``: whether a request may use it.

    Requests with credentials bypass it: the Data Service checks their rights and counts them. So do requests for the
    current version: none of their responses may be cached, so they would wait for each other in turn. The usual values
    of Accept only, because there is a response in the cache for each value.
    """
    bounds = f"keys_zone=data:8m max_size={CACHE_BYTES} inactive={CACHED}"
    return [
        ("proxy_cache_path", f"{_quoted(directory)} levels=1:2 {bounds} use_temp_path=off"),
        _block(
            "map $http_accept $cache_of_format",
            ("default", "off"),
            *((f'"{accept}"', "data") for accept in ("", "*/*", "application/json", "text/csv")),
        ),
        _block("map $arg_version $cache_of_version", ("default", "$cache_of_format"), ('""', "off")),
        # Only one spelling of each name; others are up to the Data Service.
        _block(
            "map $http_host $cache_of_host",
            ("default", "off"),
            *((f'"{each}"', "$cache_of_version") for host in plan.hosts for each in (host, f"{host}:{plan.port}")),
        ),
        _block("map $http_authorization $data_cache", ("default", "off"), ('""', "$cache_of_host")),
        # Others have their plans' limits.
        _block("map $http_authorization $keyless", ("default", '""'), ('""', _address(plan))),
        # Only responses that the Data Service gives to everybody.
        _block("map $upstream_http_cache_control $not_public", ("default", "1"), (f'"{IMMUTABLE}"', '""')),
    ]


def _temporary_paths(directory: Path) -> list[Content]:
    """Return every kind, because nginx creates them all at its start, and its default may not be writable.

    Nothing is ever written there: the directory is private to its owner (0700), and with root as owner the workers run
    as another user. So neither bodies nor responses are buffered on disk (see ``_rest``).
    """
    kinds = {"client_body": "body", "proxy": "proxy", "fastcgi": "fastcgi", "uwsgi": "uwsgi", "scgi": "scgi"}
    return [(f"{kind}_temp_path", _quoted(directory / name)) for kind, name in kinds.items()]


def _server(plan: NginxPlan) -> Any:  # noqa: ANN401
    return _block(
        "server",
        *_listener(plan),
        ("server_name", "_"),
        *_network(),
        ("client_header_timeout", "10s"),
        ("client_body_timeout", "10s"),
        ("send_timeout", "10s"),
        ("keepalive_timeout", "30s"),
        ("reset_timedout_connection", "on"),
        ("client_header_buffer_size", "1k"),
        ("large_client_header_buffers", "4 8k"),
        ("client_max_body_size", "1k"),
        ("proxy_http_version", "1.1"),
        ("proxy_connect_timeout", "3s"),
        ("proxy_send_timeout", "10s"),
        ("recursive_error_pages", "on"),
        _websocket(plan),
        _updates(plan),
        _probe(),
        # Clients that found no server: first without another probe, then without marks, where a server's 503 is passed
        # on, with its reason.
        _block("location @unmarked", ("error_page", _ALL_MARKED), *_to_servers("servers")),
        _block("location @all", *_to_servers("all_servers", "error timeout")),
        _block("location @unmarked_updates", ("error_page", "502 = @all_updates"), *_polls_to_servers("servers")),
        _block("location @all_updates", *_polls_to_servers("all_servers", "error timeout")),
        _refused(plan),
        _rest("= /v1/data", plan.per_address, _UNBOUNDED),
        _rest("= /v1/files", plan.per_address, _UNBOUNDED),
        _rest("/v1/hooks/", plan.per_address, _UNBOUNDED),
        _rest("/v1/data/", DATA_READS * plan.per_address, _UNBOUNDED, *_caching(plan)),
        _rest("/", plan.per_address, BODY_BYTES),
    )


def _listener(plan: NginxPlan) -> list[Content]:
    address = f"[{plan.listen}]:{plan.port}" if ":" in plan.listen else f"{plan.listen}:{plan.port}"
    ssl = "" if plan.certificate is None else " ssl"
    both = " ipv6only=off" if plan.listen == "::" else ""
    # Each worker would have its own socket; a dead one's stay open in the master.
    reserved = " reuseport" if plan.reserved else ""
    addresses = [address, *([f"[::1]:{plan.port}"] if plan.both_loopbacks else [])]
    listen = ("listen", [f"{each}{ssl}{both}{reserved}" for each in addresses])
    if plan.certificate is None:
        return [listen]
    return [
        listen,
        ("ssl_certificate", _quoted(plan.certificate)),
        ("ssl_certificate_key", _quoted(plan.key or plan.certificate)),
        ("ssl_protocols", "TLSv1.2 TLSv1.3"),
        ("ssl_ciphers", CIPHERS),
        ("ssl_session_cache", "shared:tls:4m"),
        ("ssl_session_tickets", "off"),
        ("add_header", _HSTS),
    ]


def _websocket(plan: NginxPlan) -> Any:  # noqa: ANN401
    return _block(
        "location = /ws",
        ("limit_conn", f"clients {plan.per_address}"),
        ("limit_req", f"zone=connects burst={2 * plan.connects_per_s} nodelay"),
        ("auth_request", _PROBE),
        # 500: no probe was answered. 504: the server was silent nevertheless, and is now marked.
        ("error_page", ["429 @refused", "500 504 = @unmarked", _ALL_MARKED]),
        *_to_servers("servers"),
    )


def _updates(plan: NginxPlan) -> Any:  # noqa: ANN401
    """Return the location of long polls and event streams; servers limit their rate by the messages of an address."""
    return _block(
        "location = /v1/updates",
        ("limit_conn", f"clients {plan.per_address}"),
        ("auth_request", _PROBE),
        ("error_page", ["429 @refused", "500 504 = @unmarked_updates", "502 = @all_updates"]),
        *_polls_to_servers("servers"),
    )


def _polls_to_servers(upstream: str, next_upstream: str = "error timeout http_503") -> list[Content]:
    return [
        # In memory as a whole, so that another server can be sent it, too.
        ("client_max_body_size", str(MAX_UPDATES_BODY_BYTES)),
        ("client_body_buffer_size", str(MAX_UPDATES_BODY_BYTES)),
        *_to_servers(
            upstream,
            f"{next_upstream} non_idempotent",
            fields=('Upgrade ""', 'Connection ""'),
            read_timeout_s=POLL_TIMEOUT_S,
        ),
    ]


def _probe() -> Any:  # noqa: ANN401
    """Return the probe for a responsive server before a client is sent to it; others are marked (ADR 5).

    Needed because the handshake's timeout and the one between frames are a single setting. And a mark is cleared by a
    request that has ended well, as probes do at once and clients after hours.
    """
    return _block(
        f"location = {_PROBE}",
        "internal",
        ("proxy_pass", "http://servers/livez"),
        ("proxy_pass_request_headers", "off"),
        ("proxy_pass_request_body", "off"),
        ("proxy_set_header", 'Content-Length ""'),
        ("proxy_buffer_size", "1k"),  # kept for as long as the client stays
        ("proxy_connect_timeout", f"{CONNECT_TIMEOUT_MS}ms"),
        ("proxy_read_timeout", f"{PROBE_S}s"),
        ("proxy_next_upstream", "error timeout"),
        # As many tries as slots: least_conn prefers unused ones, which have no connections. They refuse at once, and
        # are marked.
        ("proxy_next_upstream_tries", "0"),
        ("proxy_next_upstream_timeout", f"{PROBES_MS}ms"),
    )


def _to_servers(
    upstream: str,
    next_upstream: str = "error timeout http_503",
    *,
    fields: tuple[str, ...] = ("Upgrade $http_upgrade", "Connection $connection_upgrade"),
    # Servers send a frame every 4 s; clients wait 8.5 s for it (ADR 23).
    read_timeout_s: int = 9,
) -> list[Content]:
    return [
        ("proxy_pass", f"http://{upstream}"),
        ("proxy_set_header", [*_ADDRESS, *fields]),
        ("proxy_buffering", "off"),
        ("proxy_connect_timeout", f"{CONNECT_TIMEOUT_MS}ms"),
        ("proxy_read_timeout", f"{read_timeout_s}s"),
        ("proxy_next_upstream", next_upstream),
        ("proxy_next_upstream_tries", "0"),
        ("proxy_next_upstream_timeout", "500ms"),
    ]


def _refused(plan: NginxPlan) -> Any:  # noqa: ANN401
    """Return the answer to a client beyond these limits, as from a server: pages may read the reason."""
    detail = f"this address has {plan.per_address} clients already, or opens too many at once (--clients-per-address)"
    hsts = [] if plan.certificate is None else [_HSTS]
    return _block(
        "location @refused",
        ("default_type", "application/problem+json"),
        # These disable inheritance from the server block.
        ("add_header", [*hsts, "Access-Control-Allow-Origin * always", "Cache-Control no-store always"]),
        ("return", f"""429 '{{"status":429,"code":"limit","detail":"{detail}"}}'"""),
    )


def _rest(path: str, in_progress: int, body_bytes: int, *more: Content) -> Any:  # noqa: ANN401
    return _block(
        f"location {path}",
        # The Data Service bounds connections by address, but not a trusted proxy's: without this, one address with many
        # concurrent requests would delay all others until the last is answered.
        ("limit_conn", f"readers {in_progress}"),
        ("client_max_body_size", str(body_bytes)),
        ("client_body_buffer_size", str(BODY_BUFFER_BYTES)),
        ("proxy_request_buffering", "off"),
        ("proxy_max_temp_file_size", "0"),
        ("proxy_buffers", "8 16k"),
        ("proxy_pass", "http://data"),
        # No upgrade outside /ws: a backend tricked into answering 101 would be a tunnel past this server.
        ("proxy_set_header", [*_ADDRESS, 'Upgrade ""', 'Connection ""']),
        ("proxy_read_timeout", "30s"),
        *more,
    )


_UNBOUNDED: Final = 0
_PROBE: Final = "/ws/probe"
_ALL_MARKED: Final = "502 = @all"
"""nginx's own answer if every server is marked as failed, or refuses."""

# No add_header: it would disable inheritance from the server block.
_CACHING: Final = (
    ("proxy_cache", "$data_cache"),
    # As sent. The Data Service allows caching only one spelling of a version.
    ("proxy_cache_key", '"$request_uri"'),
    # One request per version and format, however many readers wait; they recheck every 500 ms.
    ("proxy_cache_lock", "on"),
    ("proxy_cache_lock_timeout", "5s"),
    ("proxy_cache_lock_age", "5s"),
    # Clients' caches may keep a response for a year, this one only for minutes, as rights may change.
    ("proxy_ignore_headers", "Cache-Control Expires"),
    ("proxy_cache_valid", f"200 {CACHED}"),
    ("proxy_no_cache", "$not_public"),
)

# Overwritten, not appended to: a client's claimed address is not trusted. The port stays in Host.
_ADDRESS: Final = (
    "Host $http_host",
    "X-Forwarded-For $remote_addr",
    "X-Forwarded-Proto $scheme",
    'Forwarded ""',
    "Via $via",
)
_HSTS: Final = f'Strict-Transport-Security "{HSTS}" always'


def _block(name: str, *content: Any) -> Any:  # noqa: ANN401
    return Block(name, *_options(*content))


def _options(*content: Any) -> list[Any]:  # noqa: ANN401
    """Convert pairs to directives and plain strings to directives without a value; blocks stay unchanged."""
    return [item if isinstance(item, Block) else _directive(item) for item in content]


def _directive(item: Content | str) -> Any:  # noqa: ANN401
    if isinstance(item, str):
        return KeyOption(item)
    name, value = item
    # A block holds one directive of a name: a second one would replace the first.
    return KeyValueOption(name, value) if isinstance(value, str) else KeyValuesMultiLines(name, list(value))


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# Debian's directory is on root's PATH only.
PLACES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")
MAX_OPEN_FILES: Final = 65_536


class NoNginx(ConfigurationError):
    """nginx is not installed."""

    template = (
        "nginx is not installed, and this mode needs it: install the package nginx "
        "(Debian, Ubuntu: apt install nginx), or use --mode single"
    )


def find() -> str:
    """Return the program. Raises ``NoNginx``."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *PLACES))
    found = shutil.which("nginx", path=places)
    if found is None:
        raise NoNginx
    return found


def config_file(directory: Path) -> Path:
    """Return the configuration file in nginx's own directory."""
    return directory / "nginx.conf"


def argv(program: str, directory: Path) -> tuple[str, ...]:
    """Return nginx's command line. With ``-e`` it logs to standard error even before reading the configuration."""
    return (program, "-p", str(directory), "-c", str(config_file(directory)), "-e", "stderr")


def write(directory: Path, text: str) -> None:
    """Write the configuration file into ``directory``, which is created (mode 0700)."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    config_file(directory).write_text(text, encoding="utf-8")


def new_cache(directory: Path) -> Path:
    """Create a directory for cached responses; ``directory`` is nginx's own.

    The workers of root are another user, who cannot enter ``directory``: their cache is among the temporary files, and
    nginx gives it to them.
    """
    cache = directory / "cache"
    if os.geteuid() == 0:
        cache = Path(tempfile.mkdtemp(prefix="diem-nginx-"))
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "cache-path").write_text(str(cache), encoding="utf-8")
    return cache


def remove_cache(directory: Path) -> None:
    """Remove the directory of the last run, if any: rights may have changed since."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree((directory / "cache-path").read_text(encoding="utf-8"), ignore_errors=True)
        (directory / "cache-path").unlink()


def open_files() -> int:
    """Return a worker's limit of open files: this process's hard limit, at most ``MAX_OPEN_FILES``."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
