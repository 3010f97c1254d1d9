"""Plan of one process: its ports, its stage of an orderly stop, and the variables that connect it to others; pure.

``diem up`` uses it to plan whole scaling modes (``deploy/topology``), a composite to plan its children.
"""

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
ACCESS: Final = ("ANONYMOUS", "TOKEN_KEYS", "TOKEN_AUDIENCE", "TOKEN_ISSUERS")
"""Settings by which a process decides who its clients are: the same in all processes of a system."""


class StopStage(IntEnum):
    """Stages of an orderly stop, the highest first: data flows upwards, and clients leave through nginx."""

    KAFKA = 0
    DATA = 1
    BROADCAST = 2
    METADATA = 3
    BRIDGE = 4
    NGINX = 5
    WEBSOCKET = 6
    EDGE = 7
    """A proxy, or a composite as a whole, in front of servers to which clients do not connect."""


class Ports(NamedTuple):
    """The ports of one process, and where they are. A broker's internal one is its controller's."""

    public: int | None
    internal: int | None
    host: str = HOST
    """Address at which other processes reach it: of this machine, or of the one that it is planned for."""
    name: str | None = None
    """Name by which clients reach it; None: that of the page."""

    @property
    def url_host(self) -> str:
        """The address as in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def public_address(self) -> str:
        """Address and port of the public listener."""
        return f"{self.url_host}:{self.public}"

    @property
    def internal_address(self) -> str:
        """Address and port of the internal listener."""
        return f"{self.url_host}:{self.internal}"

    @property
    def feed_url(self) -> str:
        """URL of the process's feed."""
        return f"ws://{self.internal_address}/feed"

    @property
    def link_url(self) -> str:
        """URL of a WebSocket server for links of proxies."""
        return f"ws://{self.internal_address}/ws"


def listeners(process: str, own: Ports, host: str = HOST) -> dict[str, str]:
    """Return the addresses on which a process listens; ``host`` is that of the public listener."""
    prefix = f"DIEM_{process.upper()}_"
    env = {f"{prefix}INTERNAL_HOST": own.host, f"{prefix}INTERNAL_PORT": str(own.internal)}
    if own.public is not None:
        env |= {f"{prefix}HOST": host, f"{prefix}PORT": str(own.public)}
    return env


def access(process: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a process decides who its clients are; ``values`` by name as in :data:`ACCESS`."""
    return {f"DIEM_{process.upper()}_{name}": values[name] for name in ACCESS if name in values}


def feed_urls(feeds: Iterable[Ports]) -> str:
    """Return the value of a setting with the feeds that a process reads, one at a time."""
    return ",".join(feed.feed_url for feed in feeds)


def reads_urls(data: Iterable[Ports]) -> str:
    """Return the value of a setting with the Data Services to which reads are reported, one at a time."""
    return ",".join(f"http://{own.internal_address}/v1/keys/reads" for own in data)


def websocket(number: str, mode: str, *feeds: Ports) -> dict[str, str]:
    """Return the variables of a WebSocket server that reads one of the feeds of other processes."""
    return {
        "DIEM_WEBSOCKET_NUMBER": number,
        "DIEM_WEBSOCKET_MODE": mode,
        "DIEM_WEBSOCKET_FEED_URL": feed_urls(feeds),
    }


def bridge(number: str) -> dict[str, str]:
    """Return the variables of a bridge that reads every partition."""
    return {"DIEM_BRIDGE_NUMBER": number}


def paired_bridge(number: str, clone: int, server: Ports, server_public_url: str) -> dict[str, str]:
    """Return the variables of a bridge in the group of a clone, for the server that it is paired with.

    Servers redirect subscribers to each other by ``server_public_url``.
    """
    return bridge(number) | {
        "DIEM_BRIDGE_CLONE": str(clone),
        "DIEM_BRIDGE_SERVER_INTERNAL_URL": server.link_url,
        "DIEM_BRIDGE_SERVER_PUBLIC_URL": server_public_url,
    }


def metadata(clones: Iterable[int]) -> dict[str, str]:
    """Return the variables of a metadata service for these clones."""
    return {"DIEM_METADATA_CLONES": json.dumps(list(clones))}


def proxy(number: int, mode: str, metadata_service: Ports, allowed: Iterable[str]) -> dict[str, str]:
    """Return the variables of a proxy; ``allowed`` are the networks, with or without a port, that it may dial."""
    return {
        "DIEM_PROXY_NUMBER": str(number),
        "DIEM_PROXY_MODE": mode,
        "DIEM_PROXY_METADATA_URLS": json.dumps([f"ws://{metadata_service.internal_address}/watch"]),
        "DIEM_PROXY_ALLOWED": json.dumps(list(allowed)),
    }
