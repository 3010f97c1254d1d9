"""What can be set for a bridge."""

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from diem.kafka.settings import KafkaSettings


class Settings(KafkaSettings):
    """Settings of a bridge, from ``DIEM_BRIDGE_*`` and ``DIEM_KAFKA_*``."""

    model_config = SettingsConfigDict(env_prefix="DIEM_BRIDGE_")
    process: ClassVar[str] = "bridge"

    number: int = Field(
        default=1, ge=1, le=999, description="Which bridge this is: the number of its server, from 1 on."
    )
    internal_host: str = Field(default="127.0.0.1", description="Address of the internal listener.")
    internal_port: int = Field(default=9201, ge=0, le=65535, description="Port of the internal listener; 0 = any free.")

    @property
    def process_name(self) -> str:
        """The bridge with its number: each has a log and a consumer group of its own."""
        return f"bridge-{self.number}"
