"""Settings of a Broadcast node."""

from typing import ClassVar

from pydantic import Field

from diem.fanout.data_budget import MAX_RETAINED_BYTES
from diem.process.settings import LinkUrl, ProcessSettings


class Settings(ProcessSettings):
    """Settings of the Broadcast node, from ``DIEM_BROADCAST_*``."""

    process: ClassVar[str] = "broadcast"

    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9300, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")
    feed_url: list[LinkUrl] = Field(
        default=["ws://127.0.0.1:9080/feed"],
        min_length=1,
        description="The Data Service's feed; of several, as those of it and its stand-by, the one that answers.",
    )
    retained_data_bytes: int = Field(
        default=MAX_RETAINED_BYTES,
        ge=0,
        description="Bytes of updates retained with their data, for servers that ask for it; 0 = updates carry none.",
    )
