"""Settings of the Data Service."""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from diem.fanout.data_budget import MAX_RETAINED_BYTES
from diem.process.listeners import canonical_origin
from diem.process.tls import TlsSettings
from diem.protocol.endpoints import is_valid
from diem.protocol.update import MAX_DATA_BYTES
from diem.traffic.settings import TrafficSettings
from services.data.limits import (
    CONCURRENT_READS,
    DATASET_BYTES,
    INLINE_BYTES,
    MAX_DATASET_BYTES,
    READ_RATE,
    READ_RATE_LOOPBACK,
    StoreLimits,
)

PACKAGED_PAGE: Final = Path(__file__).with_name("page")
"""The built page in an installed package."""
BUILT_PAGE: Final = Path(__file__).parents[2] / "client" / "dist"
"""The built page in a checkout."""
_STORE: Final = StoreLimits()
_HISTORY: Final = _STORE.writer.history


def built_page() -> Path:
    """Return the directory of the built page of this installation, with the packed SDK; it may be missing."""
    return PACKAGED_PAGE if PACKAGED_PAGE.is_dir() else BUILT_PAGE


class Settings(TlsSettings, TrafficSettings):
    """Settings of the Data Service, from ``DIEM_DATA_*``."""

    process: ClassVar[str] = "data"

    host: str = Field(default="127.0.0.1", description="Address of the public listener.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9080, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    database_url: SecretStr = Field(
        default_factory=lambda earlier: SecretStr(f"sqlite:///{earlier['state_dir'].absolute() / 'data.db'}"),
        description="The store: sqlite:///path/to/file or postgresql://user:password@host:port/database.",
        json_schema_extra={"shown_default": "sqlite:///<state dir>/data.db"},
    )
    retained_by: list[str] = Field(
        default=[],
        description="URLs of the internal listeners of the WebSocket servers, which have the data of a topic that is "
        "served as it is (DIEM_KAFKA_TOPIC).",
    )
    standby: bool = Field(
        default=False, description="Wait for the store while another process has it, and take over from that one."
    )
    write_key_file: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "write.key",
        description="File of the key that writes need (mode 0600).",
        json_schema_extra={"shown_default": "<state dir>/write.key"},
    )
    token_key_dir: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "token-keys",
        description="Directory of the keys that sign client tokens (mode 0700), which the newest does.",
        json_schema_extra={"shown_default": "<state dir>/token-keys"},
    )
    token_document_file: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "token-keys.json",
        description="File for the edges of this machine (their TOKEN_KEYS): the JWK Set of /v1/tokens/keys.",
        json_schema_extra={"shown_default": "<state dir>/token-keys.json"},
    )
    config: Path | None = Field(
        default=None, description="diem.toml with the sources; without it, the simulated market."
    )
    page_dir: Path = Field(
        default_factory=built_page,
        description="Directory of the built page.",
        json_schema_extra={"shown_default": "that of the package, or client/dist of the repository"},
    )
    own_pages: Path | None = Field(
        default=None, description="Directory of pages of your own, served beside the built page and before it."
    )
    operator_url: str | None = Field(
        default=None, description="URL of the operator page, to which /admin leads browsers of this machine."
    )
    mode: Literal["single", "x-broadcast", "x", "all-to-all", "z-client", "z-proxy", "z-composite", "xz"] = Field(
        default="single", description="Scaling mode, for the page."
    )
    websocket_servers: list[dict[str, Any]] = Field(
        default=[{"port": 8101, "path": "/ws"}],
        description="WebSocket servers for the page, each with port and path, or with url.",
    )
    metadata_services: list[dict[str, Any]] = Field(
        default=[], description="Metadata services for the page in mode z-client, each with port and path, or with url."
    )
    hosts: list[str] = Field(
        default=[], description="Further names of this service in Host headers; * allows any (behind a proxy only)."
    )
    trusted_proxies: list[IPv4Network | IPv6Network] = Field(
        default=[], description="Networks of proxies whose X-Forwarded-For is trusted."
    )
    anonymous_reads: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether reading needs no key; auto: within this machine only, by bind, peer and header fields.",
    )
    cors_origins: list[str] = Field(
        default=[], description="Origins whose pages may read without an API key, exact; * allows any (CORS)."
    )
    client_origins: list[str] | None = Field(
        default=None,
        description="Origins whose pages the WebSocket servers admit, so that /config.json tells other pages why they "
        "cannot connect. Default: not known.",
    )
    hot: list[str] = Field(
        default=[],
        description="Endpoints that all servers get in partitioned modes; counts when the partition map is made.",
    )
    read_rate: float = Field(
        default=READ_RATE.per_second, gt=0, description="Requests a second and address in the long run."
    )
    read_burst: float = Field(default=READ_RATE.burst, ge=1, description="Requests of one address at once.")
    read_rate_loopback: float = Field(
        default=READ_RATE_LOOPBACK.per_second, gt=0, description="The same for addresses of this machine."
    )
    read_burst_loopback: float = Field(
        default=READ_RATE_LOOPBACK.burst, ge=1, description="The same for addresses of this machine."
    )
    connections: int = Field(default=1000, ge=1, description="Open connections of readers; beyond, 503.")
    reserved_connections: int = Field(
        default=100, ge=1, description="Connections beside those for requests with the write key."
    )
    connections_per_address: int = Field(
        default=50,
        ge=1,
        description="Readers' connections of one address (IPv6: /64) but for trusted proxies; then 429.",
    )
    connections_per_address_loopback: int = Field(
        default=1000, ge=1, description="The same for addresses of this machine."
    )
    concurrent_reads: int = Field(
        default=CONCURRENT_READS, ge=1, description="Requests of readers that are worked on at once."
    )
    busy_timeout: float = Field(
        default=_STORE.busy_timeout_s, gt=0, le=60, description="Seconds that a commit waits for a lock."
    )
    max_endpoints: int = Field(
        default=_STORE.writer.max_endpoints,
        ge=1,
        description="Endpoints that the store may hold, gone ones too until they are forgotten.",
    )
    trace_rate: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the writes without a traceparent that are traced, where DIEM_TRACES is set; at most 10 "
        "writes a second are traced in all.",
    )
    history_versions: int = Field(
        default=_HISTORY.versions,
        ge=1,
        le=1000,
        description="Versions of an endpoint that are kept, the current one among them.",
    )
    history_days: float = Field(default=_HISTORY.days, gt=0, le=3650, description="Days that a version is kept.")
    inline_bytes: int = Field(
        default=INLINE_BYTES,
        ge=0,
        le=MAX_DATA_BYTES,
        description="Longest dataset that is sent with its update, in bytes of JSON; longer ones are fetched. A table "
        "[[inline]] of diem.toml sets it for the endpoints below a prefix.",
    )
    retained_data_bytes: int = Field(
        default=MAX_RETAINED_BYTES,
        ge=0,
        description="Bytes of updates retained with their data, those of the latest changes; 0 = updates carry none.",
    )
    dataset_bytes: int = Field(
        default=DATASET_BYTES,
        ge=1024,
        le=MAX_DATASET_BYTES,
        description="Largest content of an endpoint: 4 MiB are about 80,000 points of a series. A request for several "
        "endpoints has twice as much.",
    )
    cache_bytes: int = Field(default=_STORE.cache_bytes, ge=0, description="Bytes of datasets kept for readers.")

    @field_validator("hot")
    @classmethod
    def _are_endpoints(cls, names: list[str]) -> list[str]:
        if wrong := [name for name in names if not is_valid(name)]:
            raise ValueError(f"not the name of an endpoint: {wrong[0]!r}")
        return names

    @field_validator("cors_origins", "client_origins")
    @classmethod
    def _canonical(cls, origins: list[str] | None) -> list[str] | None:
        if origins is None:
            return None
        return [origin if origin == "*" else canonical_origin(origin) for origin in origins]

    @model_validator(mode="after")
    def _servers_are_complete(self) -> Self:
        lists = {"WebSocket servers": self.websocket_servers, "metadata services": self.metadata_services}
        for what, entries in lists.items():
            for entry in entries:
                if type(entry.get("url")) is not str and type(entry.get("port")) is not int:
                    raise ValueError(f"each of the {what} has a port and a path, or a url")
        return self
