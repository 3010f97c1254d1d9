"""TLS: certificates of listeners, replaced while they run, and trusted authorities of clients."""

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog
from pydantic import Field

from diem.errors import ConfigurationError
from diem.process.listeners import is_loopback
from diem.process.settings import ProcessSettings

HSTS: Final = "max-age=31536000"
"""Value of Strict-Transport-Security: browsers use TLS for a year, with this host name on any port (RFC 6797)."""
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secrecy and authenticated encryption only; TLS 1.3 has no others."""
_logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class BadCertificate(ConfigurationError):
    """A certificate or its key cannot be used, for ``reason``."""

    template = "the TLS certificate {certificate} cannot be used: {reason}"

    certificate: Path
    reason: str


@dataclass(eq=False)
class BadAuthorities(ConfigurationError):
    """A file of trusted certificates cannot be used, for ``reason``."""

    template = "the file of trusted certificates {file} cannot be used: {reason}"

    file: Path
    reason: str


class TlsSettings(ProcessSettings):
    """Settings of the certificate of a public listener."""

    tls_certificate: Path | None = Field(
        default=None,
        description="Certificate chain of the public listener (PEM), which then speaks TLS only; read again on SIGHUP.",
    )
    tls_key: Path | None = Field(
        default=None, description="Private key of the certificate (PEM, without a password); default: in its file."
    )


class ServerTls:
    """The TLS context of a listener; :meth:`reload` replaces it for new connections.

    Raises:
        BadCertificate: from the constructor.
    """

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self.context = server_context(certificate, key)
        self.expires_s = certificate_expiry_s(certificate)
        """Unix time, in seconds, at which the certificate in use expires."""
        map_large_buffers()

    def reload(self) -> None:
        """Read the files again; if they cannot be used, log the reason and keep the current certificate."""
        try:
            context = server_context(self._certificate, self._key)
            self.context, self.expires_s = context, certificate_expiry_s(self._certificate)
        except BadCertificate as error:
            _logger.error("certificate not replaced", certificate=str(self._certificate), error=error.reason)  # noqa: TRY400
        else:
            _logger.info("certificate read again", certificate=str(self._certificate))


_M_MMAP_THRESHOLD: Final = -3
"""Parameter of glibc's ``mallopt``."""
TLS_BUFFER_BYTES: Final = 256 * 1024
"""uvloop's read buffer of a TLS connection, of which some pages are used."""


def map_large_buffers() -> None:
    """Make glibc map each buffer of 256 KiB or more separately, so that unused pages take no memory.

    It does so until the first such buffer is freed; then they come from the heap, where a TLS connection takes 46 KiB
    instead of 24 (docs/performance.md). No effect on other C libraries.
    """
    import ctypes  # noqa: PLC0415  # only listeners with TLS need it

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, TLS_BUFFER_BYTES)


def server_tls(settings: TlsSettings, on_reload: "OnReload") -> ServerTls | None:
    """Return the TLS of a public listener, None without; ``on_reload`` registers a function to call on SIGHUP.

    Raises:
        ConfigurationError: the certificate cannot be used, or there is a key without a certificate.
    """
    if settings.tls_certificate is None:
        if settings.tls_key is not None:
            raise ConfigurationError("TLS_KEY is set without TLS_CERTIFICATE")
        return None
    tls = ServerTls(settings.tls_certificate, settings.tls_key)
    on_reload(tls.reload)
    return tls


class InternalTlsSettings(Protocol):
    """Settings of the certificate of an internal listener."""

    @property
    def internal_tls_certificate(self) -> Path | None:
        """Certificate chain; None: links to the listener are not encrypted."""
        ...

    @property
    def internal_tls_key(self) -> Path | None:
        """Private key; None: in the file of the certificate."""
        ...


OnReload = Callable[[Callable[[], None]], None]
"""Registers a function to call on SIGHUP."""


def internal_tls(settings: InternalTlsSettings, host: str, on_reload: OnReload | None) -> ServerTls | None:
    """Return the TLS of an internal listener on ``host``; None without a certificate, and within this machine.

    Raises:
        BadCertificate: the certificate cannot be used.
    """
    if settings.internal_tls_certificate is None or is_loopback(host):
        return None
    tls = ServerTls(settings.internal_tls_certificate, settings.internal_tls_key)
    if on_reload is not None:
        on_reload(tls.reload)
    return tls


class LinkTls:
    """TLS of a process's outgoing ``wss`` links: the trusted authorities.

    The system's are loaded on first use only, because most processes have no such links.

    Raises:
        BadAuthorities: from the constructor.
    """

    def __init__(self, ca_file: Path | None = None) -> None:
        self._context = None if ca_file is None else client_context(ca_file)

    @property
    def context(self) -> ssl.SSLContext:
        """The context; it verifies certificates and host names."""
        if self._context is None:
            self._context = client_context()
        return self._context


def server_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and 1.3 with this certificate chain.

    Raises:
        BadCertificate: a file is missing, or the key does not match, has a password, or is world-readable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    password_requests: list[bool] = []

    def no_password() -> bytes:
        # Without this, OpenSSL would prompt for a password at the terminal.
        password_requests.append(True)
        return b""

    try:
        if (key or certificate).stat().st_mode & 0o007:
            raise BadCertificate(certificate, f"everybody may access its key: chmod o= {key or certificate}")
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        raise BadCertificate(certificate, "its key has a password" if password_requests else _reason(error)) from None
    except OSError as error:
        raise BadCertificate(certificate, error.strerror or str(error)) from None
    return context


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return a context that verifies certificates and host names, by ``ca_file`` or else the system's authorities.

    Raises:
        BadAuthorities: the file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise BadAuthorities(ca_file or Path(), _reason(error)) from None
    except OSError as error:
        raise BadAuthorities(ca_file or Path(), error.strerror or str(error)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """Return a context that accepts exactly the first certificate of a file, under any host name.

    For programs that can read the server's own certificate file, on the same machine.

    Raises:
        BadAuthorities: the file has no certificate.
    """
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    try:
        text = certificate.read_text(encoding="ascii", errors="replace")
        # The rest of the chain belongs to an authority, which certifies others, too.
        first = begin + text.split(begin, 1)[1].split(end, 1)[0] + end
        context = ssl.create_default_context(cadata=first)
    except OSError as error:
        raise BadAuthorities(certificate, error.strerror or str(error)) from None
    except (IndexError, ssl.SSLError):
        raise BadAuthorities(certificate, "it has no certificate") from None
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def unverified_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate: only for probes that just need an answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def certificate_expiry_s(certificate: Path) -> float:
    """Return the Unix time, in seconds, at which the first certificate of a file expires.

    Raises:
        BadCertificate: the file has no certificate.
    """
    from cryptography import x509  # noqa: PLC0415  # only listeners with TLS need it

    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    except OSError as error:
        raise BadCertificate(certificate, error.strerror or str(error)) from None
    except ValueError:
        raise BadCertificate(certificate, "it has no certificate in PEM form") from None


def certificate_names(certificate: Path) -> tuple[str, ...]:
    """Return the host names and addresses in the first certificate of a file, without wildcards.

    Raises:
        BadCertificate: the file has no certificate.
    """
    from cryptography import x509  # noqa: PLC0415  # only the command that starts a system needs it

    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise BadCertificate(certificate, error.strerror or str(error)) from None
    except x509.ExtensionNotFound:
        return ()
    except ValueError:
        raise BadCertificate(certificate, "it has no certificate in PEM form") from None
    hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return tuple(host for host in hosts if "*" not in host)


def _reason(error: ssl.SSLError) -> str:
    texts = {
        "KEY_VALUES_MISMATCH": "its key belongs to another certificate",
        "PEM_LIB": "it has no certificate or key in PEM form",
        "NO_CERTIFICATE_OR_CRL_FOUND": "it has no certificate in PEM form",
    }
    code = (error.reason or "PEM_LIB").replace(" ", "_").upper()
    return texts.get(code) or str(error)
