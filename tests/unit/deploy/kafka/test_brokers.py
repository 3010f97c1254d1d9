import re
from pathlib import Path

import pytest

from deploy.kafka import brokers
from deploy.kafka.brokers import BrokerPlan, UnusableData

ONE = [(9092, 9093)]
THREE = [(9092, 9093), (9094, 9095), (9096, 9097)]


def parsed(text: str) -> dict[str, str]:
    pairs = [line.partition("=")[::2] for line in text.splitlines()]
    assert len(dict(pairs)) == len(pairs), "a property is there twice"
    return dict(pairs)


def rendered(plan: BrokerPlan, plans: tuple[BrokerPlan, ...]) -> dict[str, str]:
    return parsed(brokers.properties(plan, plans))


def cluster_ids(plans: tuple[BrokerPlan, ...]) -> set[str]:
    return {parsed(plan.meta_file.read_text())["cluster.id"] for plan in plans}


def test_one_broker_has_one_replica(tmp_path: Path) -> None:
    (plan,) = plans = brokers.plans(tmp_path, ONE)
    found = rendered(plan, plans)
    copies = {
        name: value for name, value in found.items() if name.endswith((".replication.factor", ".isr", ".replicas"))
    }
    assert len(copies) == 7
    assert set(copies.values()) == {"1"}
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9093"


def test_three_brokers_have_three_replicas_and_need_two(tmp_path: Path) -> None:
    plans = brokers.plans(tmp_path, THREE)
    for plan in plans:
        found = rendered(plan, plans)
        assert {value for name, value in found.items() if name.endswith(".replication.factor")} == {"3"}
        assert {value for name, value in found.items() if name.endswith((".isr", ".insync.replicas"))} == {"2"}
        assert found["controller.quorum.voters"] == "1@127.0.0.1:9093,2@127.0.0.1:9095,3@127.0.0.1:9097"
        assert found["node.id"] == str(plan.node)
    assert len({rendered(plan, plans)["log.dirs"] for plan in plans}) == 3


@pytest.mark.parametrize("ports", [ONE, THREE])
def test_brokers_listen_on_loopback_with_a_separate_controller_port(
    tmp_path: Path, ports: list[tuple[int, int]]
) -> None:
    plans = brokers.plans(tmp_path, ports)
    for plan in plans:
        found = rendered(plan, plans)
        listeners = found["listeners"].split(",")
        assert listeners == [f"PLAINTEXT://127.0.0.1:{plan.port}", f"CONTROLLER://127.0.0.1:{plan.controller_port}"]
        assert found["advertised.listeners"] == listeners[0]
    assert brokers.bootstrap_servers(plans) == ",".join(f"127.0.0.1:{port}" for port, _ in ports)


def test_auto_creation_and_unclean_election_are_off(tmp_path: Path) -> None:
    (plan,) = plans = brokers.plans(tmp_path, ONE)
    found = rendered(plan, plans)
    assert found["auto.create.topics.enable"] == found["unclean.leader.election.enable"] == "false"


def test_session_timeout_of_brokers_is_two_seconds(tmp_path: Path) -> None:
    plans = brokers.plans(tmp_path, THREE)
    found = rendered(plans[0], plans)
    assert found["broker.session.timeout.ms"] == "2000"
    assert int(found["broker.heartbeat.interval.ms"]) * 4 <= int(found["broker.session.timeout.ms"])


def test_backslash_in_a_path_is_escaped(tmp_path: Path) -> None:
    (plan,) = plans = brokers.plans(tmp_path / "a\\b", ONE)
    assert "a\\\\b/kafka-1/data" in rendered(plan, plans)["log.dirs"]


def test_command_line_has_the_archive_only_if_there_is_one(tmp_path: Path) -> None:
    (plan,) = brokers.plans(tmp_path, ONE)
    jars = (Path("/c/a.jar"), Path("/c/b.jar"))
    without = brokers.argv(Path("/bin/java"), jars, plan)
    archived = brokers.argv(Path("/bin/java"), jars, plan, Path("/c/x.jsa"))
    assert without[0] == "/bin/java"
    assert {"-Xmx256m", "-XX:+UseSerialGC", "-Dkeystore.pkcs12.keyPbeIterationCount=1"} <= set(without)
    assert without[-4:] == ("-cp", "/c/a.jar:/c/b.jar", "kafka.Kafka", str(plan.properties_file))
    assert [argument for argument in archived if argument not in without] == ["-XX:SharedArchiveFile=/c/x.jsa"]


def test_new_directories_are_of_one_cluster_with_its_features_on(tmp_path: Path) -> None:
    plans = brokers.plans(tmp_path, THREE)
    cluster_id = brokers.write(plans)
    assert re.fullmatch(r"[\w][\w-]{21}", cluster_id)
    assert cluster_ids(plans) == {cluster_id}
    metas = [parsed(plan.meta_file.read_text()) for plan in plans]
    assert [meta["node.id"] for meta in metas] == ["1", "2", "3"]
    assert len({meta["directory.id"] for meta in metas}) == 3
    for plan in plans:
        assert b"group.version" in plan.features_file.read_bytes()
        assert plan.properties_file.read_text() == brokers.properties(plan, plans)


def test_data_is_reused_with_other_ports(tmp_path: Path) -> None:
    first = brokers.plans(tmp_path, THREE)
    brokers.write(first)
    before = [plan.meta_file.read_text() for plan in first]
    first[0].features_file.unlink()  # as a broker does later
    again = brokers.plans(tmp_path, [(port + 100, controller + 100) for port, controller in THREE])
    brokers.write(again)
    assert [plan.meta_file.read_text() for plan in again] == before
    assert not first[0].features_file.exists()
    assert "9192" in again[0].properties_file.read_text()


@pytest.mark.parametrize(("there", "wanted"), [(ONE, THREE), (THREE, ONE)])
def test_data_of_another_number_of_brokers_is_refused_and_kept(
    tmp_path: Path, there: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    plans = brokers.plans(tmp_path, there)
    brokers.write(plans)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UnusableData, match=r"is of (one broker|3 brokers), not of (3 brokers|one broker)") as raised:
        brokers.write(brokers.plans(tmp_path, wanted))
    assert "\n" not in str(raised.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_unwritable_directory_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnusableData, match=r"cannot be written \(Not a directory\)"):
        brokers.write(brokers.plans(tmp_path / "file" / "below", ONE))


def test_data_of_two_clusters_is_refused(tmp_path: Path) -> None:
    plans = brokers.plans(tmp_path, THREE)
    brokers.write(plans)
    text = plans[1].meta_file.read_text()
    plans[1].meta_file.write_text(re.sub("cluster.id=.*", f"cluster.id={brokers.new_id()}", text))
    with pytest.raises(UnusableData, match="more than one cluster"):
        brokers.write(plans)


def test_brokers_with_users_ask_everybody_who_they_are(tmp_path: Path) -> None:
    (plan,) = plans = brokers.plans(tmp_path, ONE)
    brokers.write(plans, with_users=True)
    found = parsed(plan.properties_file.read_text())
    protocols = dict(pair.split(":") for pair in found["listener.security.protocol.map"].split(","))
    names = [listener.partition("://")[0] for listener in found["listeners"].split(",")]
    assert {name: protocols[name] for name in names} == {"USERS": "SASL_PLAINTEXT", "CONTROLLER": "SSL"}
    assert found["listener.name.controller.ssl.client.auth"] == "required"
    assert found["authorizer.class.name"].endswith(".StandardAuthorizer")
    assert found["allow.everyone.if.no.acl.found"] == "false"
    assert found["super.users"] == "User:CN=diem-broker;User:diem-broker;User:diem-operator"
    assert plan.properties_file.stat().st_mode & 0o077 == 0, "it has a password"


def test_data_with_users_is_not_opened_to_everybody(tmp_path: Path) -> None:
    plans = brokers.plans(tmp_path, ONE)
    cluster = brokers.write(plans, with_users=True)
    with pytest.raises(UnusableData, match="has users"):
        brokers.write(plans)
    assert brokers.write(plans, with_users=True) == cluster
