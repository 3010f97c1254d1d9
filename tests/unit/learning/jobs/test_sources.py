import json
from pathlib import Path

import pytest

from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions
from learning.jobs.sources import FileSource, TopicSource, client_options, unread_files


def test_without_security_the_options_are_servers_and_protocol() -> None:
    assert client_options(KafkaOptions("a:1,b:2")) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("PLAIN", "plain.PlainLoginModule"),
    ],
)
def test_the_login_module_is_that_of_the_mechanism(mechanism: str, module: str) -> None:
    options = KafkaOptions("a:1", "SASL_PLAINTEXT", mechanism, "me", 'a "quoted\\" word')
    found = client_options(options)
    assert found["kafka.sasl.mechanism"] == mechanism
    login = f'org.apache.kafka.common.security.{module} required username="me"'
    assert found["kafka.sasl.jaas.config"] == login + ' password="a \\"quoted\\\\\\" word";'
    assert not any("ssl." in name for name in found)


def test_tls_files_are_passed_as_text(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "certificate", "key")}
    for name, file in files.items():
        file.write_text(f"PEM of {name}")
    options = KafkaOptions(
        "a:1", "SSL", ca_file=files["ca"], certificate_file=files["certificate"], key_file=files["key"]
    )
    found = client_options(options)
    assert found["kafka.ssl.truststore.type"] == found["kafka.ssl.keystore.type"] == "PEM"
    assert found["kafka.ssl.truststore.certificates"] == "PEM of ca"
    assert found["kafka.ssl.keystore.certificate.chain"] == "PEM of certificate"
    assert found["kafka.ssl.keystore.key"] == "PEM of key"
    files["ca"].unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        client_options(options)


def test_each_topic_and_folder_is_a_source_of_its_own() -> None:
    options = KafkaOptions("a:1")
    assert TopicSource(options, "cluster/one").name != TopicSource(options, "cluster/two").name
    assert TopicSource(options, "c").topic == "diem.traffic"
    assert FileSource(Path("/a")).name != FileSource(Path("/b")).name


def test_only_complete_files_count_as_unread(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("read.jsonl", "new.jsonl", ".websocket-1-0a-1.jsonl", "other.txt"):
        (folder / name).touch()
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "0").touch()
    entry = json.dumps({"path": (folder / "read.jsonl").as_uri(), "batchId": 0})
    (checkpoint / "sources" / "0" / "0").write_text(f"v1\n{entry}")
    assert unread_files(folder, checkpoint).unread == 1
    assert unread_files(tmp_path / "nowhere", tmp_path).unread == 0
