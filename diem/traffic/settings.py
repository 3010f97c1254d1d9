"""Settings of every process that records traffic, from ``DIEM_TRAFFIC_*``."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from diem.kafka.config import KafkaSettings
from diem.protocol.traffic import is_edge


class TrafficSettings(KafkaSettings):
    """Base of the settings of an edge process; Kafka is used only if traffic goes there."""

    traffic_sink: Literal["off", "files", "kafka"] = Field(
        default="off",
        validation_alias="DIEM_TRAFFIC_SINK",
        description="Where is recorded what clients subscribe to, without saying who they are.",
    )
    traffic_dir: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "traffic",
        validation_alias="DIEM_TRAFFIC_DIR",
        description="Directory of recorded traffic; files of JSON Lines are in its folder `in`.",
        json_schema_extra={"shown_default": "<state dir>/traffic"},
    )
    traffic_max_mib: int = Field(
        default=512,
        ge=1,
        validation_alias="DIEM_TRAFFIC_MAX_MIB",
        description="MiB of files that nobody has read yet; beyond, what is new is lost.",
    )
    traffic_salt_file: Path = Field(
        default_factory=lambda earlier: earlier["state_dir"] / "traffic.salt",
        validation_alias="DIEM_TRAFFIC_SALT_FILE",
        description="File of the secret (mode 0600) that makes pseudonyms of clients, the same for all servers; it is "
        "replaced each day, so that earlier pseudonyms cannot be computed.",
        json_schema_extra={"shown_default": "<state dir>/traffic.salt"},
    )
    traffic_edge: str | None = Field(
        default=None,
        validation_alias="DIEM_TRAFFIC_EDGE",
        description="What this process is called in recorded traffic; default: as in its log.",
    )

    @field_validator("traffic_edge")
    @classmethod
    def _is_an_edge(cls, name: str | None) -> str | None:
        if name is not None and not is_edge(name):
            raise ValueError("a name has at most 64 letters, digits, '.', '_' and '-'")
        return name
