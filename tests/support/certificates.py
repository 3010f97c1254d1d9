"""Certificates for tests: an authority, and certificates that it issues for names and addresses."""

import datetime as dt
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Issued(NamedTuple):
    """Files of a certificate and its key, and the serial number by which a test recognises it."""

    certificate: Path
    key: Path
    serial: int


class Authority:
    """A certificate authority; `file` is what clients trust."""

    def __init__(self, directory: Path, name: str = "Test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._builder(self._name, self._key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = own.sign(self._key, hashes.SHA256())
        self.file = directory / f"{name.lower().replace(' ', '-')}.pem"
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        file: str = "server",
        *,
        password: bytes | None = None,
        shift: dt.timedelta = dt.timedelta(0),
    ) -> Issued:
        """Write a certificate for names and addresses, with the authority's after it, and its key (mode 0600).

        It is valid from three days before now until a day after, shifted by ``shift``: so it is for another clock.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        builder = self._builder(subject, key.public_key(), dt.datetime.now(dt.UTC) + shift)
        builder = builder.add_extension(x509.BasicConstraints(False, None), True)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), False)
        made = builder.sign(self._key, hashes.SHA256())
        files = self._directory / f"{file}.crt", self._directory / f"{file}.key"
        chain = [made, self.certificate]
        files[0].write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in chain))
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        files[1].touch(0o600)
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return Issued(*files, made.serial_number)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime | None = None
    ) -> x509.CertificateBuilder:
        now = now or dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(now + DAY)
        )


def serial_of(der: bytes | None) -> int:
    """Return the serial number of a peer's certificate."""
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
