"""Ports and addresses of processes' listeners; pure."""

from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"


class Ports(NamedTuple):
    """Ports and addresses of one process. A broker's internal port is its controller's."""

    public: int | None
    internal: int | None
    host: str = HOST
    """Address for other processes: of this machine, or of the one planned for it."""
    name: str | None = None
    """Host name for clients; None: the page's."""

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

    @property
    def watch_url(self) -> str:
        """URL of a metadata service for proxies."""
        return f"ws://{self.internal_address}/watch"
