"""Kubernetes' own API server accepts what the chart renders, and warns of nothing: ``make chart API=1``."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
import yaml

from tests.chart.api_server import PROGRAM, ApiServer, api_server
from tests.chart.cases import CASES, CHART, CUSTOM, Object, objects

pytestmark = pytest.mark.skipif(
    not os.environ.get("DIEM_CHART") or not PROGRAM.exists(), reason="needs a compiled API server: make chart API=1"
)

FAULTY: Final = "faulty"
"""Namespace of objects that are refused."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as running:
        for namespace in map(namespace_of, CASES):
            running.make_namespace(namespace)
        running.make_namespace(FAULTY)
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
        accepted(running.create(high, ""))
        yield running


@pytest.fixture(scope="module")
def next_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the chart as of a later release."""
    copied = shutil.copytree(CHART, tmp_path_factory.mktemp("next") / "chart")
    described = yaml.safe_load((copied / "Chart.yaml").read_text())
    (copied / "Chart.yaml").write_text(yaml.safe_dump(described | {"version": "9.0.0", "appVersion": "9.0.0"}))
    return copied


def namespace_of(case: str) -> str:
    """Return the namespace of a case: each has the same names of objects."""
    return f"case-{list(CASES).index(case)}"


def rendered(given: Object, chart: Path = CHART) -> list[Object]:
    """Return the objects of kinds that Kubernetes has itself."""
    return [each for each in objects(given, chart) if each["kind"] not in CUSTOM]


def pods(made: list[Object]) -> Iterator[Object]:
    """Yield the pods that controllers make of workloads."""
    for each in made:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
            volumes = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in claims]
            own = {**template["spec"], "volumes": [*template["spec"]["volumes"], *volumes]}
            metadata = {**template["metadata"], "name": each["metadata"]["name"]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": own}


def accepted(answer: httpx.Response) -> None:
    """Fail unless an object was accepted, without a warning."""
    assert answer.is_success, answer.text
    assert "warning" not in answer.headers, answer.headers["warning"]


@pytest.mark.parametrize("case", CASES)
def test_objects_are_accepted_without_a_warning_and_so_are_their_pods_and_an_upgrade(
    server: ApiServer, next_chart: Path, case: str
) -> None:
    namespace, made = namespace_of(case), rendered(CASES[case])
    assert len(made) > 5
    for each in made:
        accepted(server.create(each, namespace, dry=True))
        accepted(server.apply(each, namespace, dry=True))
    for each in made:
        accepted(server.create(each, namespace))
    for pod in pods(made):
        accepted(server.create(pod, namespace, dry=True))
    changed = {"drainSeconds": 7, "antiAffinity": "preferred", "podLabels": {"team": "one"}, "logLevel": "debug"}
    for each in rendered(CASES[case] | changed, next_chart):
        accepted(server.apply(each, namespace))


def of(name: str, kind: str, case: str = "z-proxy, plans and hpa") -> Object:
    """Return one object of a case."""
    (each,) = [each for each in rendered(CASES[case]) if (each["metadata"]["name"], each["kind"]) == (name, kind)]
    return each


def misspell(workload: Object) -> None:
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["readynessProbe"] = container.pop("readinessProbe")


def rename_port(workload: Object) -> None:
    workload["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"] = "public-for-clients"


def duplicate_port(service: Object) -> None:
    service["spec"]["ports"] *= 2


def select_others(workload: Object) -> None:
    workload["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] = "other"


def mount_nothing(workload: Object) -> None:
    workload["spec"]["template"]["spec"]["volumes"].pop()


def schedule_badly(job: Object) -> None:
    job["spec"]["schedule"] = "every hour"


FAULTS: Final[dict[str, tuple[Callable[[Object], None], tuple[str, str], int, str]]] = {
    "unknown field": (misspell, ("diem-proxy", "Deployment"), 400, "readynessProbe"),
    "name of a port": (rename_port, ("diem-proxy", "Deployment"), 422, "ports[0].name"),
    "port twice": (duplicate_port, ("diem-proxy", "Service"), 422, "spec.ports[1]"),
    "selector": (select_others, ("diem-proxy", "Deployment"), 422, "selector"),
    "volume": (mount_nothing, ("diem-proxy", "Deployment"), 422, "volumeMounts"),
    "schedule": (schedule_badly, ("diem-pipeline", "CronJob"), 422, "spec.schedule"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_refused_by_name(server: ApiServer, fault: str) -> None:
    put_in, named, status, where = FAULTS[fault]
    each = of(*named)
    accepted(server.create(each, FAULTY, dry=True))
    put_in(each)
    answer = server.create(each, FAULTY, dry=True)
    assert (answer.status_code, where in answer.text) == (status, True), answer.text


def test_privileges_are_warned_of_and_their_pods_refused(server: ApiServer) -> None:
    workload = of("diem-proxy", "Deployment")
    spec = workload["spec"]["template"]["spec"]
    spec["containers"][0]["securityContext"] = {"privileged": True}
    assert "privileged" in server.create(workload, FAULTY, dry=True).headers["warning"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "privileged"}, "spec": spec}
    answer = server.create(pod, FAULTY, dry=True)
    assert answer.status_code == 403
    assert "violates PodSecurity" in answer.text


def test_upgrade_that_changes_what_is_for_good_is_refused(server: ApiServer) -> None:
    workload = of("diem-composite", "StatefulSet", "xz")
    accepted(server.create(workload, FAULTY))
    accepted(server.apply(workload, FAULTY, dry=True))
    workload["spec"]["serviceName"] = "other"
    answer = server.apply(workload, FAULTY, dry=True)
    assert answer.status_code == 422
    assert "updates to statefulset spec" in answer.text
