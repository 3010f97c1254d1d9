"""Settings of processes with a public and an internal listener."""

from ipaddress import IPv4Network, IPv6Network
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from diem.fanout.data_budget import MAX_RETAINED_BYTES
from diem.process.limits import CAPACITY, CONNECTIONS_PER_ADDRESS, CONNECTIONS_PER_USER
from diem.process.listeners import canonical_origin
from diem.process.settings import InternalUrl, LinkUrl
from diem.process.tls import TlsSettings
from diem.protocol.messages import SUBSCRIPTIONS

Anonymous = Literal["auto", "on", "off"]
"""Which clients need no token: those of this machine, also all pages (clients with an allowed Origin), or none."""


class PublicSettings(TlsSettings):
    """Settings of a process's two listeners, its admission of clients, and the connections of one address."""

    host: str = Field(default="127.0.0.1", description="Address of the public listener.")
    port: int = Field(default=8101, ge=0, le=65535, description="Port of the public listener; 0 = a free one.")
    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9101, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    origins: list[str] = Field(
        default=[], description="Origins whose pages may connect, exact; the page's own is allowed on loopback."
    )
    page_port: int | None = Field(default=8080, description="Port of the page, for the origin rule on loopback.")
    trusted_proxies: list[IPv4Network | IPv6Network] = Field(
        default=[], description="Networks of proxies whose X-Forwarded-For is trusted."
    )
    anonymous: Anonymous = Field(
        default="auto",
        description="Clients that need no token: on = all but programs (no Origin) of other machines; auto = those "
        "whose connection, on a loopback bind, and header fields show no other machine; off = none.",
    )
    token_keys: list[str] = Field(
        default=[], description="Files or URLs (https, or http on this machine) of JWK Sets whose keys sign tokens."
    )
    token_audience: str = Field(default="diem", min_length=1, description="Audience (aud) that tokens must name.")
    token_issuers: list[str] = Field(
        default=["diem"], min_length=1, description="Issuers (iss) whose tokens are accepted."
    )
    connections_per_address: int = Field(
        default=CONNECTIONS_PER_ADDRESS, ge=1, description="Clients of one address (IPv6: of one /64)."
    )

    @field_validator("origins")
    @classmethod
    def _canonical(cls, origins: list[str]) -> list[str]:
        return [canonical_origin(origin) for origin in origins]

    @model_validator(mode="after")
    def _someone_may_connect(self) -> Self:
        if self.anonymous == "off" and not self.token_keys:
            raise ValueError("anonymous=off needs token_keys: nobody could connect")
        return self

    @property
    def access_decided(self) -> bool:
        """True if remote clients need a token, or anonymous ones were allowed explicitly."""
        return bool(self.token_keys) or self.anonymous == "on"


class EdgeSettings(PublicSettings):
    """Settings of WebSocket servers and proxies: their listeners, and the limits of their clients."""

    subscriptions: int = Field(
        default=SUBSCRIPTIONS, ge=1, le=8 * SUBSCRIPTIONS, description="Subscriptions that one connection may hold."
    )
    connection_rate_per_address: float | None = Field(
        default=None,
        gt=0,
        description="New clients of one address a second in the long run; 50, or as many as it may have, may come at "
        "once. Default: 10, or a fifth of those that it may have.",
    )
    limit_loopback: bool = Field(
        default=True,
        description="Whether clients of this machine have the limits of one address, too. diem up sets false where it "
        "listens on a loopback address, unless --clients-per-address is given.",
    )
    connections_per_user: int = Field(
        default=CONNECTIONS_PER_USER,
        ge=1,
        description="Clients of one user, as tokens name them (sub), in this process.",
    )
    anonymous_data: Anonymous = Field(
        default="auto",
        description="Clients that may be sent data with updates without a token: on = all that need none; auto = those "
        "of this machine, as the Data Service decides for reads; off = none, they fetch.",
    )
    retained_data_bytes: int = Field(
        default=MAX_RETAINED_BYTES,
        ge=0,
        description="Bytes of updates retained with their data, for clients that ask for it; 0 = updates carry none.",
    )
    compression: bool = Field(
        default=True,
        description="Compress the data of updates, once for all clients that can read it (permessage-deflate), as "
        "browsers can.",
    )
    reads_url: list[InternalUrl] = Field(
        default=[],
        description="Where reads of data with updates are reported by API key: http(s)://host:port/v1/keys/reads of "
        "the Data Service's internal listener; of several, as those of it and its stand-by, the one that answers. "
        "Default: they are not counted.",
    )
    shared_port: bool = Field(
        default=False,
        description="Whether other processes listen on the same public port, each with clients of its own "
        "(SO_REUSEPORT): it listens only while it is ready, and limits of one address count the clients of all. "
        "diem up sets it.",
    )
    capacity: int = Field(default=CAPACITY, ge=1, description="Clients of this process.")


class ServerSettings(EdgeSettings):
    """Settings of WebSocket servers, and of composites for theirs."""

    interest_url: list[LinkUrl] = Field(
        default=[],
        description="Where it is reported which endpoints are watched, for sources that poll these: "
        "ws(s)://host:port/interest of the Data Service's internal listener; of several, the one that answers. "
        "Default: nowhere.",
    )
