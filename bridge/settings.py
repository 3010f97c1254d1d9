"""Settings of a bridge."""

from typing import ClassVar, Final, Self

from pydantic import Field, field_validator, model_validator

from diem.kafka.config import KafkaSettings
from diem.process.listeners import is_loopback, parse_address
from diem.process.numbers import FORMS, parse_number
from diem.process.settings import check_link_url
from diem.protocol.assignment import Owner, member_id

SERVER_PORT: Final = 8101
SERVER_INTERNAL_PORT: Final = 9101
"""Ports of a WebSocket server, unless configured otherwise."""


class Settings(KafkaSettings):
    """Settings of a bridge, from ``DIEM_BRIDGE_*`` and ``DIEM_KAFKA_*``."""

    process: ClassVar[str] = "bridge"

    number: int = Field(
        default=1, ge=1, le=999, description=f"Number of this bridge and of its server, for good: {FORMS}."
    )
    clone: int | None = Field(
        default=None,
        ge=1,
        description="Group of bridges that share the partitions; without a group, a bridge reads all of them.",
    )
    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9201, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    server_host: str = Field(
        default_factory=lambda earlier: _reached(earlier["internal_host"]),
        description="Address or name at which others reach this bridge's server, such as that of their pod; for the "
        "defaults of its URLs, which a group needs.",
        json_schema_extra={"shown_default": "the address of the internal listener, if others can reach it"},
    )
    server_internal_url: str = Field(
        default_factory=lambda earlier: _url(earlier["server_host"], SERVER_INTERNAL_PORT),
        description="URL of this bridge's server for proxies, which a group publishes.",
        json_schema_extra={"shown_default": f"ws://<server host>:{SERVER_INTERNAL_PORT}/ws"},
    )
    server_public_url: str = Field(
        default_factory=lambda earlier: _url(earlier["server_host"], SERVER_PORT),
        description="URL of this bridge's server for clients, which a group publishes.",
        json_schema_extra={"shown_default": f"ws://<server host>:{SERVER_PORT}/ws"},
    )

    @field_validator("server_host")
    @classmethod
    def _is_a_host(cls, host: str) -> str:
        if set(host) & set("/?|"):
            raise ValueError("an address or a name, without a port and a path, is needed")
        if host:
            check_link_url(_url(host, SERVER_PORT))
        return host

    @field_validator("number", mode="before")
    @classmethod
    def _of_the_pod(cls, value: object) -> object:
        return parse_number(value)

    @model_validator(mode="after")
    def _require_server_urls(self) -> Self:
        urls = (self.server_internal_url, self.server_public_url)
        if self.clone is not None and not all(url.startswith(("ws://", "wss://")) and "|" not in url for url in urls):
            raise ValueError(
                "DIEM_BRIDGE_CLONE needs DIEM_BRIDGE_SERVER_HOST, the address at which others reach this bridge's "
                "server (status.podIP of its pod), or DIEM_BRIDGE_SERVER_INTERNAL_URL and "
                "DIEM_BRIDGE_SERVER_PUBLIC_URL, both ws:// or wss://"
            )
        return self

    @property
    def process_name(self) -> str:
        """The numbered name: each bridge has its own log and, without a group, its own consumer group."""
        return f"bridge-{self.number}"

    @property
    def owner(self) -> Owner:
        """This bridge's server, as registered in the group."""
        return Owner(member_id(self.number), self.server_internal_url, self.server_public_url)


def _reached(host: str) -> str:
    """Return the host of a listener if others may reach it; empty for this machine alone, and for all addresses."""
    address = parse_address(host)
    return "" if is_loopback(host) or (address is not None and address.is_unspecified) else host


def _url(host: str, port: int) -> str:
    address = parse_address(host)
    bare = host.strip("[]")
    return f"ws://{f'[{bare}]' if address is not None and address.version == 6 else host}:{port}/ws" if host else ""
