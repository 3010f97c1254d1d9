"""Addresses that ``/config.json`` names to clients (docs/protocol.md section 2)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urljoin, urlsplit


class Edges(NamedTuple):
    """Addresses to which clients connect."""

    servers: list[str]
    """URLs of the WebSocket servers."""
    metadata: list[str]
    """Base URLs of the metadata services; empty if every server serves everything."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any], base: str) -> Self:
        """Return those of a ``/config.json`` that was read from ``base``.

        A server has an ``href``, relative to that, or a ``url``, or is on the same host.
        """
        parts = urlsplit(base)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname

        def address(entry: Mapping[str, Any], scheme: str) -> str:
            if "href" in entry:
                return scheme + urljoin(f"{base}/", str(entry["href"])).removeprefix(parts.scheme)
            port = f":{entry['port']}" if "port" in entry else ""
            return str(entry.get("url") or f"{scheme}://{host}{port}{entry['path']}")

        def urls(entries: Iterable[Mapping[str, Any]], scheme: str) -> list[str]:
            return [address(entry, scheme) for entry in entries]

        metadata = config.get("metadata", []) if config.get("mode") == "z-client" else []
        servers = urls(config.get("servers", []), "wss" if parts.scheme == "https" else "ws")
        return cls(servers, urls(metadata, parts.scheme))
