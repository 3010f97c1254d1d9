"""Settings of a bridge."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from diem.kafka.config import KafkaSettings
from diem.protocol.assignment import Owner, member_id


class Settings(KafkaSettings):
    """Settings of a bridge, from ``DIEM_BRIDGE_*`` and ``DIEM_KAFKA_*``."""

    process: ClassVar[str] = "bridge"

    number: int = Field(default=1, ge=1, le=999, description="Number of this bridge and of its server, from 1.")
    clone: int | None = Field(
        default=None,
        ge=1,
        description="Group of bridges that share the partitions; without a group, a bridge reads all of them.",
    )
    server_internal_url: str = Field(
        default="", description="URL of this bridge's server for proxies; required in a group, which publishes it."
    )
    server_public_url: str = Field(
        default="", description="URL of this bridge's server for clients; required in a group, which publishes it."
    )
    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9201, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")

    @model_validator(mode="after")
    def _require_server_urls(self) -> Self:
        urls = (self.server_internal_url, self.server_public_url)
        if self.clone is not None and not all(url.startswith(("ws://", "wss://")) and "|" not in url for url in urls):
            raise ValueError(
                "DIEM_BRIDGE_CLONE needs DIEM_BRIDGE_SERVER_INTERNAL_URL and DIEM_BRIDGE_SERVER_PUBLIC_URL, "
                "both ws:// or wss://"
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
