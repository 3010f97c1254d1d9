"""Keeps a verifier's keys and revoked API keys current, from JWK Sets in files and at URLs."""

import asyncio
import os
import ssl
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import structlog

from diem.errors import ConfigurationError, DiemError
from diem.process import metrics
from diem.process.auth import foreign_owner, is_private
from diem.process.backoff import Backoff
from diem.process.clock import Clock, SystemClock
from diem.process.listeners import host_of, is_loopback
from diem.process.private_files import open_unblocked
from diem.tokens.errors import BadKeySet, KeysMissing, KeysUnavailable
from diem.tokens.key_set import MAX_DOCUMENT_BYTES, KeySet, parse_key_set
from diem.tokens.verifier import Verifier

if TYPE_CHECKING:
    # Loaded on the first poll of a URL: processes with files or without tokens do not need it.
    import httpx

POLL_URL_S: Final = 20.0
"""Seconds between two polls of a URL, and the longest delay after a failure: revocations arrive within a minute."""
POLL_FILE_S: Final = 5.0
TIMEOUT_S: Final = 10.0
"""Time limit of one request."""
RETRY_BASE_S: Final = 0.5
FILE_GRACE_S: Final = 10.0
"""Time for a file to appear: when a system starts, the Data Service's does not exist yet."""
OWN_FILE: Final = "token-keys.json"
OWN_PATH: Final = "/v1/tokens/keys"
"""Names of a Data Service's key set, in its state directory and at its address."""
_MAX_ETAG: Final = 256

OnWithdrawn = Callable[[], None]
"""Called when API keys are revoked or issuers' keys are no longer trusted: tokens verified before may be void."""

_logger = structlog.get_logger(__name__)


class Location(Protocol):
    """Location of a JWK Set."""

    name: str
    """Name for log and status, without secrets."""
    poll_s: float
    """Seconds between two polls."""

    async def poll(self) -> KeySet | None:
        """Return the content; None if it has not changed since the last call.

        Raises:
            BadKeySet: the content is no usable JWK Set.
            KeysUnavailable: it cannot be read now.
        """
        ...


class KeyFile:
    """A JWK Set in a file. It may contain secrets if it is private (``is_private``)."""

    poll_s = POLL_FILE_S

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._seen: tuple[int, ...] | None = None

    async def poll(self) -> KeySet | None:
        """Read the file if it was changed or replaced."""
        return self.read()

    def read(self) -> KeySet | None:
        """Read the file if it was changed or replaced; see :meth:`Location.poll`."""
        try:
            with open(self._path, "rb", opener=open_unblocked) as file:
                status = os.fstat(file.fileno())
                # Bad content is not parsed again until it changes: it was reported.
                seen = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
                if seen == self._seen:
                    return None
                if not stat.S_ISREG(status.st_mode):
                    raise KeysUnavailable("not a regular file")
                if owner := foreign_owner(status):
                    raise KeysUnavailable(f"it belongs to user {owner}, who could trust any key: chown it")
                if status.st_mode & 0o022:
                    raise KeysUnavailable("others may write it: run chmod go-w")
                content = file.read(MAX_DOCUMENT_BYTES + 1)
        except FileNotFoundError as error:
            raise KeysMissing(error.strerror or str(error)) from error
        except OSError as error:
            raise KeysUnavailable(error.strerror or str(error)) from error
        found = parse_key_set(content, secrets=is_private(status))
        self._seen = seen
        return found


class KeyUrl:
    """A JWK Set at a URL, read with conditional requests (RFC 9110 section 13). Redirects are not followed.

    Args:
        url: ``https://``, or ``http://`` to this machine.
        tls: trusted authorities; None for the usual ones.
        transport: replaces the network in tests.
    """

    poll_s = POLL_URL_S

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, transport: "httpx.AsyncBaseTransport | None" = None
    ) -> None:
        self.name = url
        self._tls = tls
        self._transport = transport
        self._etag: str | None = None
        self._http: httpx.AsyncClient | None = None

    async def poll(self) -> KeySet | None:
        """Get the document unless its ETag is that of the last answer."""
        import httpx  # noqa: PLC0415

        if self._http is None:
            self._http = self._client()
        headers = {} if self._etag is None else {"If-None-Match": self._etag}
        try:
            async with asyncio.timeout(TIMEOUT_S), self._http.stream("GET", self.name, headers=headers) as response:
                if response.status_code == 304 and self._etag is not None:
                    return None
                if response.status_code != 200:
                    raise KeysUnavailable(f"status {response.status_code}")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise KeysUnavailable("the answer has a coding that was not requested")
                content = await _bounded_body(response)
                etag = response.headers.get("etag", "")
        except TimeoutError:
            raise KeysUnavailable(f"no answer within {TIMEOUT_S:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise KeysUnavailable(str(error) or type(error).__name__) from error
        found = parse_key_set(content, secrets=False)
        self._etag = etag if 0 < len(etag) <= _MAX_ETAG and etag.isascii() else None
        return found

    async def close(self) -> None:
        """Close the connection."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def _client(self) -> "httpx.AsyncClient":
        import httpx  # noqa: PLC0415

        from diem.process.http_transport import HttpTransport  # noqa: PLC0415

        # Loading the usual authorities takes 20 ms, which URLs of this machine do not need.
        usual = self.name.startswith("https://") and self._transport is None
        tls = self._tls or (httpx.create_ssl_context(trust_env=False) if usual else False)
        # Between two polls, an idle connection would count against the limits of the server.
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=0)
        return httpx.AsyncClient(
            headers={"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
            timeout=TIMEOUT_S,
            transport=self._transport or HttpTransport(verify=tls, limits=limits),
        )


def location_of(text: str, tls: ssl.SSLContext | None = None) -> KeyFile | KeyUrl:
    """Return the location for a setting: a URL, or the path of a file.

    Raises:
        ConfigurationError: a URL that intermediaries could answer, or with a password.
    """
    if "://" not in text:
        return KeyFile(Path(text))
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise ConfigurationError(f"token keys: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError("token keys: a location is the path of a file, or an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("token keys: a URL has no user name and password, since key sets are public")
    if host_of(parts.netloc) is None:
        raise ConfigurationError(f"token keys: a URL has a host and a port, not {parts.netloc!r}")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigurationError(
            f"token keys: anybody between here and {parts.hostname} could replace the keys: use https://, or a file"
        )
    return KeyUrl(text, tls)


class KeySource:
    """Polls the locations and gives a verifier the union of their contents.

    A failing location, or one with a faulty document, keeps its last good content indefinitely. Owns that content.

    Args:
        locations: paths and URLs; or locations, in tests.
        verifier: is given keys and revocations.
        on_withdrawn: called once the verifier refuses tokens that it accepted before.
        tls: authorities for https URLs; None for the usual ones.
        clock: for the age of the content.
        pause: waits between polls, for tests.
    """

    def __init__(
        self,
        locations: Sequence[str | Location],
        verifier: Verifier,
        *,
        on_withdrawn: OnWithdrawn | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._verifier = verifier
        self._on_withdrawn = on_withdrawn
        self._clock = clock or SystemClock()
        self._pause = pause
        self._polled = [_PolledLocation(location_of(at, tls) if isinstance(at, str) else at) for at in locations]

    def load_files(self) -> None:
        """Read all files, which must be usable at start-up.

        Raises:
            ConfigurationError: one is not.
        """
        for each in self._polled:
            if isinstance(each.location, KeyFile):
                try:
                    self._update(each, each.location.read())
                except DiemError as error:
                    raise ConfigurationError(f"token keys: {each.location.name}: {error}") from error

    async def run(self) -> None:
        """Poll all locations until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in self._polled:
                    tasks.create_task(self._poll(each))
        finally:
            for each in self._polled:
                if isinstance(each.location, KeyUrl):
                    await each.location.close()

    @property
    def ready(self) -> bool:
        """True once every location has been read; before, good tokens may be refused."""
        return all(each.content is not None for each in self._polled)

    def status(self) -> dict[str, Any]:
        """Return the fields for ``/status``."""
        return {
            "keys": sum(len(each.content.keys) for each in self._polled if each.content is not None),
            "revoked": self._revoked,
            "locations": [
                {"location": each.location.name, "age_seconds": self._age_s(each), "error": each.error}
                for each in self._polled
            ],
        }

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the metrics of the keys, and of the tokens verified with them."""
        yield metrics.TOKEN_KEYS.sample(sum(len(each.content.keys) for each in self._polled if each.content))
        yield metrics.TOKEN_KEYS_REVOKED.sample(self._revoked)
        yield metrics.TOKEN_KEY_FAILURES.sample(sum(each.failures for each in self._polled))
        ages = [age for each in self._polled if (age := self._age_s(each)) is not None]
        yield metrics.TOKEN_KEYS_AGE.sample(max(ages, default=0.0))
        yield from verified_samples(self._verifier)

    async def _poll(self, each: "_PolledLocation") -> None:
        backoff = Backoff(RETRY_BASE_S, POLL_URL_S)
        awaited_until = self._clock.monotonic() + FILE_GRACE_S
        while True:
            try:
                self._update(each, await each.location.poll())
            except (BadKeySet, KeysUnavailable) as error:
                each.failures += 1
                each.error = str(error)
                grace_s = awaited_until - self._clock.monotonic()
                if isinstance(error, KeysMissing) and each.content is None and grace_s > 0:
                    await self._pause(min(backoff.next_delay(), grace_s))
                    continue
                if each.reported != each.error:
                    each.reported = each.error
                    _logger.warning("keys of client tokens not read", location=each.location.name, error=each.error)
                await self._pause(backoff.next_delay())
            else:
                backoff.reset()
                await self._pause(each.location.poll_s)

    def _update(self, each: "_PolledLocation", found: KeySet | None) -> None:
        """Record a successful poll; None: the content has not changed."""
        each.checked_at = self._clock.monotonic()
        each.error = None
        if each.reported is not None:
            each.reported = None
            _logger.info("keys of client tokens read again", location=each.location.name)
        if found is None or replace(found, own=each.own) == each.content:
            return
        keys_before = {key for other in self._polled if other.content for key in other.content.keys}
        revoked = found.revoked.keys() - (each.content.revoked.keys() if each.content is not None else ())
        each.content = replace(found, own=each.own)
        contents = [other.content for other in self._polled if other.content is not None]
        keys = {key for content in contents for key in content.keys}
        self._verifier.replace_sets(contents)
        _logger.info("keys of client tokens", location=each.location.name, kids=[key.kid for key in found.keys])
        withdrawn = keys_before - keys
        if withdrawn:
            _logger.info("keys of client tokens withdrawn", kids=sorted(key.kid for key in withdrawn))
        if self._on_withdrawn is not None and (withdrawn or revoked):
            self._on_withdrawn()

    @property
    def _revoked(self) -> int:
        """Revoked API keys of all sets."""
        return sum(len(each.content.revoked) for each in self._polled if each.content is not None)

    def _age_s(self, each: "_PolledLocation") -> float | None:
        return None if each.checked_at is None else round(self._clock.monotonic() - each.checked_at, 1)


def is_of_data_service(location: str) -> bool:
    """Return whether a file or URL is the key set of a Data Service, by its name."""
    path = urlsplit(location).path
    return path.rpartition("/")[2] == OWN_FILE or path.endswith(OWN_PATH)


class _PolledLocation:
    """A location and its state."""

    __slots__ = ("checked_at", "content", "error", "failures", "location", "own", "reported")

    def __init__(self, location: Location) -> None:
        self.location = location
        self.own = is_of_data_service(location.name)
        self.content: KeySet | None = None
        """The last good content."""
        self.checked_at: float | None = None
        """Monotonic time of the last successful poll."""
        self.error: str | None = None
        """Of the last poll, if it failed."""
        self.reported: str | None = None
        """The error that the log has, until a poll succeeds."""
        self.failures = 0


def verified_samples(verifier: Verifier) -> Iterable[metrics.Sample]:
    """Return the metrics of the tokens verified by a verifier."""
    for outcome, count in verifier.outcomes.items():
        yield metrics.TOKENS_VERIFIED.sample(count, outcome)


async def _bounded_body(response: "httpx.Response") -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_DOCUMENT_BYTES:
            raise BadKeySet(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
    return bytes(body)
