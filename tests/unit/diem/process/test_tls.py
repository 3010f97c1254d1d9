"""Contexts of listeners and clients, by handshakes in memory."""

import platform
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from diem.errors import ConfigurationError
from diem.process.tls import (
    BadAuthorities,
    BadCertificate,
    ServerTls,
    TlsSettings,
    certificate_names,
    client_context,
    pinned_context,
    server_context,
    server_tls,
)
from tests.support.certificates import DAY, Authority, serial_of


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """Return the client's side after the handshake. Raises `ssl.SSLError`."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting
    return ends[0]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
def test_listener_speaks_tls_1_3_and_1_2_with_forward_secrecy_and_nothing_older(authority: Authority) -> None:
    server = server_context(*authority.issue()[:2])
    assert handshake(server, client_context(authority.file)).version() == "TLSv1.3"
    for version, expected in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_1, None)):
        client = client_context(authority.file)
        client.set_ciphers("ALL:@SECLEVEL=0")
        client.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        client.maximum_version = version
        if expected is None:
            with pytest.raises(ssl.SSLError):
                handshake(server, client)
        else:
            met = handshake(server, client)
            assert met.version() == expected
            cipher = met.cipher()
            assert cipher is not None
            assert cipher[0].startswith("ECDHE-")


def test_client_verifies_authority_name_and_date(authority: Authority, tmp_path: Path) -> None:
    good = server_context(*authority.issue(("diem.example", "192.0.2.1"))[:2])
    for name in ("diem.example", "192.0.2.1"):
        handshake(good, client_context(authority.file), name)
    for server, authorities, name in (
        (good, authority.file, "other.example"),
        (good, authority.file, "192.0.2.2"),
        (good, Authority(tmp_path, "Other authority").file, "diem.example"),
        (good, None, "diem.example"),
        (server_context(*authority.issue(file="old", shift=-3 * DAY)[:2]), authority.file, "localhost"),
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, client_context(authorities), name)


def test_pinned_client_accepts_one_certificate_by_any_name_and_no_other_of_its_authority(authority: Authority) -> None:
    own, other = authority.issue(file="own"), authority.issue(file="other")
    handshake(server_context(*own[:2]), pinned_context(own.certificate), "192.0.2.99")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(*other[:2]), pinned_context(own.certificate), "localhost")


def test_reload_replaces_the_certificate_and_a_bad_one_does_not(authority: Authority) -> None:
    first = authority.issue()
    tls = ServerTls(first.certificate, first.key)
    client = client_context(authority.file)
    assert serial_of(handshake(tls.context, client).getpeercert(True)) == first.serial
    authority.issue(shift=-3 * DAY)
    tls.reload()
    assert tls.expires_s < time.time()
    second = authority.issue()
    tls.reload()
    assert tls.expires_s > time.time() + 3600
    assert serial_of(handshake(tls.context, client).getpeercert(True)) == second.serial
    authority.issue(file="third")[1].replace(second.key)
    with capture_logs() as logs:
        tls.reload()
    assert [log["error"] for log in logs] == ["its key belongs to another certificate"]
    assert serial_of(handshake(tls.context, client).getpeercert(True)) == second.serial


def open_to_all(certificate: Path, key: Path) -> tuple[Path, Path]:
    key.chmod(0o644)
    return certificate, key


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda certificate, key: (certificate.with_name("none"), key), "No such file"),
        (lambda certificate, key: (certificate, key.with_name("none")), "No such file"),
        (lambda certificate, key: (certificate.parent, key), "Is a directory|no certificate"),
        (lambda certificate, key: (key, key), "no certificate or key in PEM form"),
        (lambda certificate, key: (certificate, certificate), "everybody may access|no certificate or key in PEM form"),
        (open_to_all, "everybody may access its key: chmod o= "),
    ],
)
def test_unusable_certificate_is_one_clear_error(
    authority: Authority, spoil: Callable[[Path, Path], tuple[Path, Path]], reason: str
) -> None:
    issued = authority.issue()
    with pytest.raises(BadCertificate, match=reason) as caught:
        server_context(*spoil(issued.certificate, issued.key))
    assert "\n" not in str(caught.value)


def test_key_with_a_password_is_refused_without_asking_for_it(authority: Authority) -> None:
    with pytest.raises(BadCertificate, match="its key has a password"):
        server_context(*authority.issue(password=b"secret")[:2])


def test_certificate_and_key_may_be_in_one_file(authority: Authority) -> None:
    certificate, key, _ = authority.issue()
    both = certificate.with_name("both.pem")
    both.touch(0o600)
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    handshake(server_context(both), client_context(authority.file))


@pytest.mark.parametrize("make", [client_context, pinned_context])
def test_unusable_authorities_are_one_clear_error(make: Callable[[Path], Any], tmp_path: Path) -> None:
    for content in (None, b"no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(BadAuthorities, match="trusted certificates"):
            make(file)


def test_settings_without_a_certificate_mean_no_tls(authority: Authority) -> None:
    reloads: list[Callable[[], None]] = []
    assert server_tls(TlsSettings(), reloads.append) is None
    with pytest.raises(ConfigurationError, match="TLS_KEY is set without TLS_CERTIFICATE"):
        server_tls(TlsSettings(tls_key=Path("x")), reloads.append)
    assert not reloads
    issued = authority.issue()
    tls = server_tls(TlsSettings(tls_certificate=issued.certificate, tls_key=issued.key), reloads.append)
    assert tls is not None
    assert reloads == [tls.reload]


def test_names_of_a_certificate_are_hosts_and_addresses_without_wildcards(authority: Authority) -> None:
    issued = authority.issue(("diem.example", "*.diem.example", "192.0.2.1", "2001:db8::1"))
    assert certificate_names(issued.certificate) == ("diem.example", "192.0.2.1", "2001:db8::1")
    for spoilt in (issued.key, issued.key.with_name("none")):
        with pytest.raises(BadCertificate):
            certificate_names(spoilt)


_MAPPED = """
import ctypes
import sys
import time
from diem.process import tls

if "map" in sys.argv:
    tls.map_large_buffers()
libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
# Once a mapped buffer has been freed, glibc takes the next ones from the heap, where the first may be from, too.
for first in [libc.malloc(tls.TLS_BUFFER_BYTES) for _ in range(8)]:
    libc.free(first)
held = [libc.malloc(tls.TLS_BUFFER_BYTES) for _ in range(32)]
# A mapped buffer begins behind the header at the start of a page. Free room of the heap is used before.
print(sum(address % 4096 == 16 for address in held) > 24)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or sys.maxsize < 2**32, reason="of glibc on 64 bits")
@pytest.mark.parametrize("mapped", [True, False])
def test_large_buffers_are_mapped_one_by_one_also_after_one_was_freed(mapped: bool) -> None:
    argv = [sys.executable, "-c", _MAPPED, *(["map"] if mapped else [])]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(mapped)
