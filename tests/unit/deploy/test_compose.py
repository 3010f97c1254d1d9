"""``deploy/compose.yaml`` beside the code that knows the same: modes, ports, the version, brokers, Prometheus."""

from pathlib import Path
from typing import Any

import pytest

from deploy.kafka import brokers, jars
from diem import __version__
from diem.process.modes import KINDS, Mode
from tools.prometheus import configuration

yaml = pytest.importorskip("yaml", reason="comes with the test packages")
FILE = Path(brokers.__file__).parents[1] / "compose.yaml"
FILE_OF_KAFKA = {"listeners", "log.dirs"}
OTHERS = {"network", "postgres", "kafka", "prometheus", "grafana"}


@pytest.fixture
def described() -> dict[str, Any]:
    """Return the parsed file."""
    result: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return result


def test_each_mode_is_a_service_with_a_profile_and_what_it_needs(described: dict[str, Any]) -> None:
    services = described["services"]
    assert services.keys() - OTHERS == set(Mode)
    for mode in Mode:
        service = services[mode]
        assert service["profiles"] == [mode]
        assert service["command"][:3] == ["up", "--mode", mode]
        needs_kafka = mode in services["kafka"]["profiles"]
        assert ("kafka" in service["depends_on"]) == needs_kafka
        assert ("DIEM_KAFKA_BOOTSTRAP_SERVERS" in service["environment"]) == needs_kafka
        assert needs_kafka == any(kind in mode.processes for kind in ("bridge", "composite")), mode


def test_all_share_one_network_whose_ports_only_this_machine_reaches(described: dict[str, Any]) -> None:
    services = described["services"]
    ports = [each.split(":") for each in services["network"]["ports"]]
    assert all(address == "127.0.0.1" and outside == inside for address, outside, inside in ports)
    assert all(each["network_mode"] == "service:network" for name, each in services.items() if name != "network")
    published = {port for *_, inside in ports for port in _range(inside)}
    assert published >= {kind.public for kind in KINDS.values() if kind.public and kind is not KINDS["nginx"]}


def _range(ports: str) -> range:
    first, _, last = ports.partition("-")
    return range(int(first), int(last or first) + 1)


def test_images_have_the_versions_that_the_code_is_tested_with(described: dict[str, Any]) -> None:
    services = described["services"]
    assert {services[name]["image"] for name in ("network", *Mode)} == {
        f"${{DIEM_IMAGE:-localhost/diem:{__version__}}}"
    }
    assert services["kafka"]["image"] == f"apache/kafka:{jars.VERSION}"


def test_broker_has_the_settings_of_the_local_one(described: dict[str, Any], tmp_path: Path) -> None:
    (plan,) = plans = brokers.plans(tmp_path, [(9092, 9093)])
    local = dict(line.split("=", 1) for line in brokers.properties(plan, plans).splitlines())
    there = described["services"]["kafka"]["environment"]
    for name in local.keys() - FILE_OF_KAFKA:
        assert there[f"KAFKA_{name.upper().replace('.', '_')}"] == local[name]


def test_prometheus_scrapes_as_diem_metrics_prints_it(described: dict[str, Any]) -> None:
    state = Path("/var/lib/diem")
    printed = yaml.safe_load("\n".join(configuration.configuration(state / "metrics.key", state / "targets.json")))
    there = yaml.safe_load(described["configs"]["prometheus"]["content"])
    assert {**there, "rule_files": printed["rule_files"]} == printed
    for name, file in (("alerts", configuration.ALERTS), ("dashboard", configuration.DASHBOARD)):
        assert (FILE.parent / described["configs"][name]["file"]).resolve() == file
