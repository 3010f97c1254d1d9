"""Clients of a deployment's WebSocket servers, and a command's credentials for it."""

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.clients.data_service import DataService
from diem.client import BaseClient, PartitionedClient, TokenFunction, UpdatesClient
from diem.errors import ConfigurationError
from diem.process.auth import SharedKey
from diem.protocol.page_config import Edges


@dataclass(frozen=True, slots=True)
class Credentials:
    """The file of an API key, or of a client token, or neither."""

    key_file: Path | None = None
    token_file: Path | None = None

    def bearer(self) -> SharedKey | None:
        """Return the bearer for the Data Service; None: none. Raises ``BadKeyFile``."""
        path = self.key_file or self.token_file
        return None if path is None else SharedKey.load(path)

    def token_function(self, service: DataService, subject: str | None = None) -> TokenFunction | None:
        """Return a client's source of tokens; None: it needs none.

        Args:
            service: issues tokens for an API key.
            subject: user of these tokens, for limits per user; None: the key itself.

        Raises:
            BadKeyFile: the file of the key or token is not one.
        """
        key, file = self.bearer(), self.token_file
        if file is not None:
            return lambda: SharedKey.load(file).header.removeprefix("Bearer ")
        return None if key is None else partial(service.client_token, key, subject)


ANONYMOUS: Final = Credentials()


def credentials_of(key_file: Path | None, token_file: Path | None) -> Credentials:
    """Return the credentials of a command. Raises ``ConfigurationError`` for both a key and a token."""
    if key_file is not None and token_file is not None:
        raise ConfigurationError("--key-file and --token-file: choose one of them")
    return Credentials(key_file, token_file)


def client_of(
    edges: Edges,
    origin: str,
    token: TokenFunction | None = None,
    tls: ssl.SSLContext | None = None,
    *,
    data: bool = False,
    local_address: str | None = None,
) -> BaseClient:
    """Return a client for the deployment; it finds each endpoint's server if they are divided."""
    common: dict[str, Any] = {
        "origin": origin,
        "token": token,
        "tls": tls,
        "data": data,
        "local_address": local_address,
    }
    if not edges.metadata:
        return UpdatesClient(edges.servers, **common)
    hosts = {urlsplit(origin).hostname or ""}
    return PartitionedClient(edges.servers, metadata=edges.metadata, hosts=hosts, **common)
