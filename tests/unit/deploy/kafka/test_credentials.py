import ssl
from pathlib import Path

import pytest
from cryptography import x509

from deploy.kafka.credentials import BrokerCredentials, certificate_file, controller_context, jaas, password_of
from deploy.topology.kafka_users import KafkaUser, directory_of
from diem.process.auth import BadKeyFile


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_secrets_are_private_distinct_and_kept(tmp_path: Path) -> None:
    first = BrokerCredentials.prepare(tmp_path)
    before = contents(tmp_path)
    assert all(path.stat().st_mode & 0o077 == 0 for path in before)
    passwords = {password_of(user, tmp_path) for user in KafkaUser}
    assert len(passwords) == len(KafkaUser)
    assert BrokerCredentials.prepare(tmp_path) == first
    assert contents(tmp_path) == before
    assert first.broker_password not in repr(first)


def test_the_example_of_a_topic_on_this_machine_has_the_login_of_the_operator() -> None:
    docs = (Path(__file__).parents[4] / "docs" / "sources.md").read_text()
    login = KafkaUser.OPERATOR.settings(directory_of(Path(".diem")))
    program = docs.partition("```python orders.py")[2].partition("```")[0]
    command = docs.partition("kafka://127.0.0.1:9092/orders")[2].partition("```")[0]
    for name, value in login.items():
        assert f'"{value}"' in program or f'Path("{value}")' in program
        assert f"--set {name}={value}" in command


def test_password_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    BrokerCredentials.prepare(tmp_path)
    KafkaUser.BRIDGE.password_file(tmp_path).chmod(0o644)
    with pytest.raises(BadKeyFile, match="others may read it"):
        BrokerCredentials.prepare(tmp_path)


def test_certificate_that_others_may_read_is_refused(tmp_path: Path) -> None:
    BrokerCredentials.prepare(tmp_path)
    certificate_file(tmp_path).chmod(0o604)
    with pytest.raises(BadKeyFile, match="others may read it"):
        BrokerCredentials.prepare(tmp_path)


def test_certificate_proves_both_ends_of_a_connection_to_this_machine(tmp_path: Path) -> None:
    BrokerCredentials.prepare(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate_file(tmp_path))
    server.load_verify_locations(certificate_file(tmp_path))
    server.verify_mode = ssl.CERT_REQUIRED
    connect(controller_context(tmp_path), server)
    BrokerCredentials.prepare(tmp_path / "other")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(controller_context(tmp_path / "other"), server)


def test_certificate_is_valid_whatever_the_clock_was_when_it_was_made_and_is_later(tmp_path: Path) -> None:
    BrokerCredentials.prepare(tmp_path)
    made = x509.load_pem_x509_certificate(certificate_file(tmp_path).read_bytes())
    assert (made.not_valid_before_utc.year, made.not_valid_after_utc.year) == (2020, 9999)


def connect(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Do a handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done: set[int] = set()
    while len(done) < 2:
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass


def test_password_is_quoted_in_the_login_of_java() -> None:
    assert jaas(KafkaUser.DATA, 'a"b\\c').endswith(' username="diem-data" password="a\\"b\\\\c";')
