"""Settings of Kafka in the environment: accepted and refused values."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from diem.errors import ConfigurationError
from diem.kafka.config import KafkaSettings
from diem.process.settings import BadSettings
from services.broadcast.settings import Settings as BroadcastSettings
from services.data.settings import Settings as DataSettings
from tests.support.file_owners import give_away, needs_root

SASL = {"DIEM_KAFKA_BOOTSTRAP_SERVERS": "k:9092", "DIEM_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}


def set_all(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_without_brokers_there_are_no_options() -> None:
    with pytest.raises(ConfigurationError, match="DIEM_KAFKA_BOOTSTRAP_SERVERS"):
        KafkaSettings().kafka()


def test_names_take_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, DIEM_KAFKA_BOOTSTRAP_SERVERS="k:9092", DIEM_KAFKA_TOPIC_PREFIX="north-")
    names = KafkaSettings.load().kafka().names
    assert (names.updates, names.x_group(7)) == ("north-updates", "north-x-007")


def test_a_misspelt_setting_is_named_where_kafka_is_used_and_left_alone_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_all(monkeypatch, DIEM_KAFKA_BOOTSTRAP_SERVER="k:9092")
    with pytest.raises(BadSettings, match="did you mean `DIEM_KAFKA_BOOTSTRAP_SERVERS`"):
        DataSettings.load()
    BroadcastSettings.load()


@needs_root
def test_a_password_file_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    give_away(file).chmod(0o600)
    set_all(monkeypatch, **SASL, DIEM_KAFKA_SASL_USERNAME="diem", DIEM_KAFKA_SASL_PASSWORD_FILE=str(file))
    with pytest.raises(ConfigurationError, match="belongs to user 12345"):
        KafkaSettings.load().kafka()


@pytest.mark.parametrize("prefix", ["a/b", "x" * 101, "ü"])
def test_a_prefix_that_no_topic_can_have_is_refused(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    set_all(monkeypatch, DIEM_KAFKA_TOPIC_PREFIX=prefix)
    with pytest.raises(BadSettings, match="at most 100"):
        KafkaSettings.load()


def test_sasl_needs_a_user_and_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, **SASL)
    with pytest.raises(BadSettings, match="SASL needs"):
        KafkaSettings.load()


def test_the_password_comes_from_a_file_that_nobody_else_can_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o644)
    set_all(monkeypatch, **SASL, DIEM_KAFKA_SASL_USERNAME="diem", DIEM_KAFKA_SASL_PASSWORD_FILE=str(file))
    with pytest.raises(ConfigurationError, match="chmod 600"):
        KafkaSettings.load().kafka()
    file.chmod(0o600)
    arguments = KafkaSettings.load().kafka().client_arguments()
    assert (arguments["sasl_mechanism"], arguments["sasl_plain_password"]) == ("SCRAM-SHA-512", "s3cret")


def test_tls_verifies_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, DIEM_KAFKA_BOOTSTRAP_SERVERS="k:9092", DIEM_KAFKA_SECURITY_PROTOCOL="SSL")
    context = KafkaSettings.load().kafka().client_arguments()["ssl_context"]
    assert context.check_hostname


def test_a_missing_certificate_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(
        monkeypatch,
        DIEM_KAFKA_BOOTSTRAP_SERVERS="k:9092",
        DIEM_KAFKA_SECURITY_PROTOCOL="SSL",
        DIEM_KAFKA_CA_FILE="/nowhere.pem",
    )
    with pytest.raises(ConfigurationError, match=r"/nowhere\.pem"):
        KafkaSettings.load().kafka().client_arguments()


@pytest.mark.parametrize(
    "servers", ["k:9092", "k", "one:9092, two:9092", "[::1]:9092", "::1", "10.0.0.1:9092,10.0.0.2:9092"]
)
def test_brokers_are_hosts_with_ports(monkeypatch: pytest.MonkeyPatch, servers: str) -> None:
    set_all(monkeypatch, DIEM_KAFKA_BOOTSTRAP_SERVERS=servers)
    assert KafkaSettings.load().kafka().bootstrap_servers == servers.replace(" ", "")


@pytest.mark.parametrize(
    "servers", [",", "k:9092,", "k:port", "k:99999", "k:0", ":9092", "::1::", "k 9092", "PLAINTEXT://k:9092"]
)
def test_what_is_no_broker_is_refused(monkeypatch: pytest.MonkeyPatch, servers: str) -> None:
    set_all(monkeypatch, DIEM_KAFKA_BOOTSTRAP_SERVERS=servers)
    with pytest.raises(BadSettings, match=r"^DIEM_KAFKA_BOOTSTRAP_SERVERS: brokers are host:port"):
        KafkaSettings.load()


@pytest.mark.parametrize(("content", "why"), [(b"\xff\xfe", "not UTF-8 text"), (b" \n", "empty")])
def test_a_password_file_without_a_password_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, why: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    file.chmod(0o600)
    set_all(monkeypatch, **SASL, DIEM_KAFKA_SASL_USERNAME="diem", DIEM_KAFKA_SASL_PASSWORD_FILE=str(file))
    with pytest.raises(ConfigurationError, match=f"the password file {file} .*{why}"):
        KafkaSettings.load().kafka()


@pytest.mark.parametrize(
    ("brokers", "protocol", "away"),
    [
        ("127.0.0.1:9092,localhost:9093,[::1]:9094", "PLAINTEXT", None),
        ("127.0.0.1:9092,kafka-1:9092,192.0.2.1", "PLAINTEXT", ["kafka-1:9092", "192.0.2.1"]),
        ("kafka-2:9092", "SSL", None),
    ],
)
def test_brokers_of_other_machines_without_tls_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, brokers: str, protocol: str, away: list[str] | None
) -> None:
    set_all(monkeypatch, DIEM_KAFKA_BOOTSTRAP_SERVERS=brokers, DIEM_KAFKA_SECURITY_PROTOCOL=protocol)
    settings = KafkaSettings.load()
    with capture_logs() as logs:
        settings.kafka()
        settings.kafka()
    assert [log["brokers"] for log in logs] == ([] if away is None else [away])
