"""Secrets of a local Kafka: its users' passwords, and the certificate shared by its brokers.

All are files of mode 0600 in the brokers' data directory. They are created on the first start, even for data older than
users, and kept.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.topology.kafka_users import MECHANISM, PROTOCOL, TOOLS_FILE, KafkaUser
from diem.process.auth import MAX_CHARACTERS, SharedKey, check_key, read_private
from diem.process.private_files import replace_private

CERTIFICATE_NAME: Final = "diem-broker"
"""Common name in the certificate, which makes brokers and the operator's tool super users at controllers."""
_CERTIFICATE_FILE: Final = "controllers.pem"
_MAX_PEM_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class BrokerCredentials:
    """Credentials of brokers, to accept clients with a password, and each other."""

    certificate: Path
    """Certificate and private key (PEM), the same for all brokers, trusted by them alone."""
    broker_password: str = field(repr=False)

    @classmethod
    def prepare(cls, directory: Path) -> "BrokerCredentials":
        """Create missing files in ``directory``, for every user; blocking.

        Raises:
            BadKeyFile: a file is invalid, or open to others.
            OSError: the directory cannot be written.
        """
        users = KafkaUser.BROKER.password_file(directory).parent
        users.mkdir(mode=0o700, parents=True, exist_ok=True)
        for user in KafkaUser:
            SharedKey.create(user.password_file(directory))
        certificate = certificate_file(directory)
        if not certificate.exists():
            from deploy.kafka.certificate import self_signed  # noqa: PLC0415  # of a first start

            replace_private(certificate, self_signed(), sync=True)
        read_private(certificate, _MAX_PEM_BYTES)
        login = jaas(KafkaUser.OPERATOR, password_of(KafkaUser.OPERATOR, directory))
        lines = (f"security.protocol={PROTOCOL}", f"sasl.mechanism={MECHANISM}", f"sasl.jaas.config={login}")
        replace_private(directory / TOOLS_FILE, "".join(f"{line}\n" for line in lines).encode(), sync=True)
        return cls(certificate, password_of(KafkaUser.BROKER, directory))


def certificate_file(directory: Path) -> Path:
    """Return the file of the brokers' certificate; it exists if the data has users."""
    return directory / _CERTIFICATE_FILE


def password_of(user: KafkaUser, directory: Path) -> str:
    """Return a user's password.

    Raises:
        BadKeyFile: the file is missing, invalid, or open to others.
    """
    file = user.password_file(directory)
    return check_key(file, read_private(file, MAX_CHARACTERS + 2))


def jaas(user: KafkaUser, password: str) -> str:
    """Return the login of a user in the syntax of Java (JAAS), as a value of a properties file."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{login} required username="{user.login}" password="{quoted}";'


def controller_context(directory: Path) -> ssl.SSLContext:
    """Return the context of a connection to a controller, with the brokers' certificate at both ends; reads files."""
    certificate = certificate_file(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate)
    context.load_cert_chain(certificate)
    return context
