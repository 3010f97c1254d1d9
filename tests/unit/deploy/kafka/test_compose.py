from pathlib import Path
from typing import Any

import pytest

from deploy.kafka import brokers, jars

yaml = pytest.importorskip("yaml", reason="comes with the test packages")
FILE = Path(brokers.__file__).with_name("compose.yaml")
OF_THE_CONTAINER = {"listeners", "log.dirs"}


def service() -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load(FILE.read_text())
    assert set(described["services"]) == {"kafka"}
    result: dict[str, Any] = described["services"]["kafka"]
    return result


def test_container_has_the_settings_of_the_local_broker(tmp_path: Path) -> None:
    (plan,) = plans = brokers.plans(tmp_path, [(9092, 9093)])
    local = dict(line.split("=", 1) for line in brokers.properties(plan, plans).splitlines())
    there = service()["environment"]
    for name in local.keys() - OF_THE_CONTAINER:
        assert there[f"KAFKA_{name.upper().replace('.', '_')}"] == local[name]


def test_container_has_the_same_version_and_listens_on_loopback() -> None:
    described = service()
    assert described["image"] == f"apache/kafka:{jars.VERSION}"
    assert described["ports"] == ["127.0.0.1:9092:9092"]
    assert described["healthcheck"]["test"]
