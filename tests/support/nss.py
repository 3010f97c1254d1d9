"""Trust of a browser: the certificate database that Chromium reads on Linux.

Written with NSS itself, which Chromium depends on, because its tool (``certutil``) is another package.
"""

from ctypes import CDLL, Structure, byref, c_uint, c_ulong, c_void_p
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import Authority

DATABASE: Final = ".pki/nssdb"
"""Below the home directory of the browser."""
ISSUES_SERVER_CERTIFICATES: Final = b"C,,"


class _Trust(Structure):
    """``CERTCertTrust``: flags for TLS, mail and signed objects."""

    _fields_ = (("tls", c_uint), ("mail", c_uint), ("objects", c_uint))


class NssError(Exception):
    """A function of NSS failed."""


def trust(home: Path, authority: Authority) -> None:
    """Make browsers with this home directory trust an authority for TLS; it has no database yet.

    Raises:
        OSError: there is no NSS on this machine.
        NssError: the database cannot be written.
    """
    directory = home / DATABASE
    directory.mkdir(parents=True)
    nss, smime = CDLL("libnss3.so"), CDLL("libsmime3.so")
    for function in (nss.PK11_GetInternalKeySlot, nss.CERT_GetDefaultCertDB, smime.CERT_DecodeCertFromPackage):
        function.restype = c_void_p
    der = authority.certificate.public_bytes(Encoding.DER)
    flags = _Trust()
    _check(nss.NSS_InitReadWrite(f"sql:{directory}".encode()) == 0, "NSS_InitReadWrite")
    slot = c_void_p(nss.PK11_GetInternalKeySlot())
    certificate = c_void_p(smime.CERT_DecodeCertFromPackage(der, len(der)))
    try:
        _check(nss.PK11_InitPin(slot, None, b"") == 0, "PK11_InitPin")
        _check(nss.PK11_ImportCert(slot, certificate, c_ulong(0), b"test authority", 0) == 0, "PK11_ImportCert")
        _check(nss.CERT_DecodeTrustString(byref(flags), ISSUES_SERVER_CERTIFICATES) == 0, "CERT_DecodeTrustString")
        database = c_void_p(nss.CERT_GetDefaultCertDB())
        _check(nss.CERT_ChangeCertTrust(database, certificate, byref(flags)) == 0, "CERT_ChangeCertTrust")
    finally:
        nss.CERT_DestroyCertificate(certificate)
        nss.PK11_FreeSlot(slot)
        nss.NSS_Shutdown()


def _check(succeeded: bool, function: str) -> None:
    if not succeeded:
        raise NssError(function)
