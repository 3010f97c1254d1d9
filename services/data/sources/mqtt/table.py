"""The keys of ``[[source]]`` with ``type = "mqtt"``."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from services.data.sources.records.table import RecordTable
from services.data.sources.tables import OwnFile

MAX_TOPICS: Final = 100
DAY_S: Final = 86_400
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username is not None or parts.path not in {"", "/"} or parts.query:
        raise ValueError("expected mqtt://host:1883 or mqtts://host:8883; user and password have keys of their own")
    return text


def _topic_filter(text: str) -> str:
    levels = text.split("/")
    if text.startswith("$share/"):
        raise ValueError("a shared subscription has no order, and one source reads all: leave out $share/GROUP/")
    if "\0" in text or "#" in text[:-1] or any("+" in each and each != "+" for each in levels):
        raise ValueError("+ stands for one level, # for all levels from the last one on")
    if text.endswith("#") and levels[-1] != "#":
        raise ValueError("# is a level of its own, as in sensors/#")
    return text


class MqttTable(RecordTable):
    """A source of the messages of a broker."""

    origin: ClassVar[Sequence[str]] = ("topic",)

    type: Literal["mqtt"]
    url: Annotated[str, AfterValidator(_url)] = Field(
        max_length=300, description="mqtt://host:1883, or mqtts://host:8883 with TLS."
    )
    topics: list[Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_topic_filter)]] = Field(
        min_length=1, max_length=MAX_TOPICS, description="Topics, with the wildcards + and #."
    )
    format: Literal["json", "text", "bytes"] = Field(default="json", description="Of messages.")
    version: Literal["5", "3.1.1"] = Field(default="5", description="Of the protocol.")
    qos: Literal[0, 1] = Field(default=1, description="Greatest quality of service; 1: at least once.")
    session_s: int = Field(
        default=7 * DAY_S,
        ge=60,
        le=366 * DAY_S,
        description="Seconds that the broker keeps messages while DIEM is down.",
    )
    client_id: str | None = Field(
        default=None, min_length=1, max_length=200, description="Of the session. Default: made once, and stored."
    )
    username: str | None = Field(default=None, max_length=1000, description="User name.")
    password_file: OwnFile | None = Field(default=None, description="File of the password (mode 0600).")
    ca_file: OwnFile | None = Field(
        default=None, description="CA certificates of the broker (PEM). Default: the system's."
    )
    certificate_file: OwnFile | None = Field(default=None, description="Client certificate (PEM), for mutual TLS.")
    key_file: OwnFile | None = Field(default=None, description="Private key of the client certificate.")

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if self.password_file is not None and self.username is None:
            yield "password_file needs username"
        files = self.ca_file, self.certificate_file, self.key_file
        if any(file is not None for file in files) and not self.is_encrypted:
            yield "ca_file, certificate_file and key_file need mqtts://"
        if self.key_file is not None and self.certificate_file is None:
            yield "key_file needs certificate_file"

    @property
    def is_encrypted(self) -> bool:
        """True with TLS."""
        return urlsplit(self.url).scheme == "mqtts"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""
        parts = urlsplit(self.url)
        return str(parts.hostname), parts.port or _PORTS[parts.scheme]
