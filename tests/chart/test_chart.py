"""The chart as helm renders it: valid objects, and settings that the processes accept."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from deploy.cli.commands import command_line
from deploy.install.chart_modes import PEERS
from deploy.system.state_dir import StateDir
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.settings import ProcessSettings, settings_of
from tests.chart.cases import (
    BUILT,
    CASES,
    CHART,
    CUSTOM,
    KUBECONFORM,
    MODES,
    Failed,
    Object,
    containers,
    helm,
    needs_tools,
    objects,
    pod_specs,
    render,
    values,
)
from tests.chart.schemas import LOCATION, write_schemas

pytestmark = needs_tools
STATELESS = {"bridge", "websocket", "proxy", "broadcast"}
POD = {"POD_NAME": "diem-websocket-3", "POD_IP": "10.1.2.3"}
PROVED = {
    ("metadata", "proxy"): KeyRole.METADATA,
    ("metadata", "pipeline"): KeyRole.ADMIN,
    ("websocket", "metadata"): KeyRole.METADATA,
}
"""Role that the second pod proves to the first one; elsewhere it is the one of feeds."""


@pytest.fixture(scope="session")
def schemas() -> None:
    source = Path((BUILT / "kubernetes").read_text().strip())
    write_schemas(source / "api" / "openapi-spec" / "swagger.json")


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest) -> list[Object]:
    return objects(CASES[request.param])


def validate(text: str) -> tuple[int, str]:
    argv: list[str | Path] = [
        KUBECONFORM,
        "-strict",
        "-summary",
        "-schema-location",
        LOCATION,
        "-skip",
        ",".join(CUSTOM),
        "-",
    ]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_chart_has_no_faults_that_helm_knows() -> None:
    found = helm("lint", str(CHART), "--strict", given=values("xz"))
    assert isinstance(found, str), found.text


@pytest.mark.usefixtures("schemas")
@pytest.mark.parametrize("case", CASES)
def test_objects_are_those_of_kubernetes(case: str) -> None:
    text = render(CASES[case])
    assert isinstance(text, str), text.text
    code, output = validate(text)
    assert code == 0, output
    assert "Valid: 0" not in output


@pytest.mark.usefixtures("schemas")
def test_misspelt_field_is_found() -> None:
    text = render(values("xz"))
    assert isinstance(text, str)
    code, output = validate(text.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"))
    assert code != 0
    assert "readOnlyRootFileSystem" in output


def test_every_process_accepts_its_settings(
    rendered: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    for container in (each for spec in pod_specs(rendered).values() for each in containers(spec)):
        if container["args"][0] == "run":
            settings = load(container, tmp_path, monkeypatch)
            assert settings.health_port is not None
            seen += 1
    assert seen >= 2


def load(container: Object, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessSettings:
    """Return the settings that a container has; faults are errors."""
    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DIEM_")]:
            patch.delenv(name)
        for variable in container["env"]:
            value = variable.get("value") or POD[variable["name"]]
            for name, own in POD.items():
                value = value.replace(f"$({name})", own)
            if variable["name"] == "DIEM_DATA_DATABASE_URL_FILE":
                secret = folder / "url"
                secret.write_text("postgresql://user:password@host/database")
                secret.chmod(0o600)
                value = str(secret)
            patch.setenv(variable["name"], value)
        return settings_of(container["args"][1]).load()


def test_numbers_and_addresses_are_those_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bridge, server) = containers(pod_specs(objects(values("z-proxy")))["websocket"])
    assert load(server, tmp_path, monkeypatch).process_name == "websocket-4"
    loaded: Any = load(bridge, tmp_path, monkeypatch)
    assert (loaded.process_name, loaded.clone, loaded.server_host) == ("bridge-4", 1, "10.1.2.3")


def test_no_pod_has_privileges(rendered: list[Object]) -> None:
    for spec in pod_specs(rendered).values():
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["enableServiceLinks"] is False
        for container in containers(spec):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_mounts_have_volumes_and_keys_of_writes_are_the_data_services_alone(rendered: list[Object]) -> None:
    for component, spec in pod_specs(rendered).items():
        volumes = {each["name"]: each for each in spec["volumes"]}
        claims = claimed(rendered, component)
        for container in containers(spec):
            assert {each["name"] for each in container["volumeMounts"]} <= volumes.keys() | claims
        keys = json.dumps(volumes["keys"])
        assert ("write.key" in keys) == (component == "data")


@pytest.fixture
def rings(rendered: list[Object], tmp_path: Path) -> dict[str, KeyRing]:
    """Return the keys that the pods have of the Secret, by component."""
    secret = tmp_path / "secret"
    StateDir(secret).create_keys(with_roles=True)
    found = {}
    for component, spec in pod_specs(rendered).items():
        (folder := tmp_path / component).mkdir()
        (volume,) = [each["projected"] for each in spec["volumes"] if each["name"] == "keys"]
        for item in (each for source in volume["sources"] for each in source["secret"]["items"]):
            shutil.copy(secret / item["key"], folder / item["path"])
        found[component] = KeyRing.load(folder / "internal.key")
    return found


def accepted(listener: KeyRing, peer: KeyRing) -> set[KeyRole]:
    """Return the roles at a listener of all keys that a peer has."""
    keys = {peer.key(role).id for role in KeyRole}
    return {role for key in keys for role in (listener.find(key) or (None, ()))[1]}


def test_pods_open_those_that_they_dial(rings: dict[str, KeyRing]) -> None:
    dialled = [(name, peer) for name, peers in PEERS.items() for peer in peers if {name, peer} <= rings.keys()]
    assert dialled
    for name, peer in dialled:
        role = PROVED.get((name, peer), KeyRole.FEED)
        found = rings[name].find(rings[peer].key(role).id)
        assert found is not None, (name, peer)
        assert role in found[1], (name, peer)


def test_who_takes_over_a_public_pod_makes_no_keys_and_no_plans(rings: dict[str, KeyRing]) -> None:
    """The Data Service and the metadata service are open to clients themselves: each has what is its own."""
    assert rings.keys() & {"websocket", "composite"}
    for peer, ring in rings.items():
        for listener in {"data", "metadata"} & rings.keys() - {peer}:
            if (listener, peer) != ("metadata", "pipeline"):
                assert KeyRole.ADMIN not in accepted(rings[listener], ring), (listener, peer)
    if "metadata" in rings:
        assert KeyRole.METADATA not in accepted(rings["metadata"], rings["data"])


def claimed(rendered: list[Object], component: str) -> set[str]:
    return {
        claim["metadata"]["name"]
        for each in rendered
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == f"diem-{component}"
        for claim in each["spec"].get("volumeClaimTemplates", [])
    }


def test_state_directory_is_private_so_it_is_no_volume_itself(rendered: list[Object]) -> None:
    for spec in pod_specs(rendered).values():
        for container in containers(spec):
            (state,) = [each["value"] for each in container["env"] if each["name"] == "DIEM_STATE_DIR"]
            mounts = {each["mountPath"] for each in container["volumeMounts"]}
            assert state not in mounts
            assert any(state.startswith(f"{mount}/") for mount in mounts) or container["name"] in STATELESS


def test_services_lead_to_ports_of_their_pods(rendered: list[Object]) -> None:
    specs = pod_specs(rendered)
    services = [each for each in rendered if each["kind"] == "Service"]
    for service in services:
        named = ports_of(specs[service["spec"]["selector"]["app.kubernetes.io/component"]])
        for port in service["spec"]["ports"]:
            assert named[port["targetPort"]] == port["port"]
    names = {each["metadata"]["name"] for each in services}
    for spec in specs.values():
        for container in containers(spec):
            for value in (each.get("value", "") for each in container["env"]):
                if value.startswith(("ws://diem-", "http://diem-")):
                    assert value.partition("//")[2].partition(":")[0] in names


def ports_of(spec: Object) -> dict[str, int]:
    return {each["name"]: each["containerPort"] for own in containers(spec) for each in own.get("ports", [])}


def test_ingress_leads_to_services(rendered: list[Object]) -> None:
    ports = {
        each["metadata"]["name"]: each["spec"]["ports"][0]["port"] for each in rendered if each["kind"] == "Service"
    }
    for ingress in (each for each in rendered if each["kind"] == "Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                assert ports[service["name"]] == service["port"]["number"]


def test_internal_ports_are_open_to_those_who_dial_them_alone() -> None:
    rendered = objects(values("z-proxy"))
    policies = {each["metadata"]["name"]: each["spec"] for each in rendered if each["kind"] == "NetworkPolicy"}
    assert policies.keys() == {f"diem-{component}" for component in pod_specs(rendered)}
    internal = {9080, 9101, 9201, 9400, 9501}
    for rule in (each for spec in policies.values() for each in spec["ingress"]):
        if internal & {port["port"] for port in rule["ports"]}:
            assert rule["from"]
    (servers,) = [r for r in policies["diem-websocket"]["ingress"] if {"port": 9101} in r["ports"]]
    (components,) = servers["from"][0]["podSelector"]["matchExpressions"]
    assert set(components["values"]) == {"metadata", "proxy"}


def test_pods_have_time_to_drain() -> None:
    spec = pod_specs(objects(values("xz", drainSeconds=20, timeFactor=2, preStopSeconds=7)))["composite"]
    assert spec["terminationGracePeriodSeconds"] >= 20 * 2 + 7 + 2


def test_autoscaler_and_chart_do_not_both_set_replicas() -> None:
    for case, kind in (("z-proxy, plans and hpa", "HorizontalPodAutoscaler"), ("xz, keda", "ScaledObject")):
        rendered = objects(CASES[case])
        (scaler,) = [each for each in rendered if each["kind"] == kind]
        target = scaler["spec"]["scaleTargetRef"]
        (scaled,) = [
            each for each in rendered if each["kind"] == target["kind"] and each["metadata"]["name"] == target["name"]
        ]
        assert "replicas" not in scaled["spec"]


def test_commands_of_the_pipeline_have_these_options() -> None:
    spec = pod_specs(objects(CASES["z-proxy, plans and hpa"]))["pipeline"]
    assert [each["name"] for each in containers(spec)] == ["pipeline", "plan"]
    for container in containers(spec):
        command: Any = get_command(command_line(container["args"]))
        words = iter(container["args"])
        while hasattr(command, "commands"):
            command = command.commands[next(words)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


REFUSED = {
    "url": values("xz") | {"url": ""},
    "kafka.bootstrapServers": values("xz") | {"kafka": {}},
    "kafka.sasl": values("xz") | {"kafka": {"bootstrapServers": "kafka:9092", "securityProtocol": "SASL_SSL"}},
    "zClient.domain": values("z-client") | {"zClient": {}},
    "data.replicas": values("xz", data={"replicas": 2}),
    "data.persistence.accessMode": values("xz", data={"replicas": 2, "postgres": {"secret": "postgres"}}),
    "access": values("xz") | {"url": "http://diem.example.com"},
    "trustedProxies": values("xz", trustedProxies=[]),
    "autoscaling.kind": values("z-client", autoscaling={"kind": "hpa"}, metrics={"enabled": True}),
    "pipeline.enabled": values("xz", pipeline={"enabled": True}),
    "pipeline.plan.enabled": values("xz", pipeline={"plan": {"enabled": True}}),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_values_that_cannot_work_are_refused_by_name(fault: str) -> None:
    found = render(REFUSED[fault])
    assert isinstance(found, Failed)
    assert f"{fault}: " in found.text


@pytest.mark.parametrize("given", [{"mode": "y"}, {"colour": "red"}, {"data": {"replica": 2}}])
def test_unknown_values_are_refused(given: Object) -> None:
    found = render(values("xz") | given)
    assert isinstance(found, Failed)
    assert "schema" in found.text


@pytest.mark.parametrize("mode", MODES)
def test_names_are_short_enough_for_numbers_and_those_of_the_release(mode: str) -> None:
    text = render(values(mode), release="a-release-with-quite-a-long-name-of-fifty-characters")
    assert isinstance(text, str), text.text
    names = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text) if each]
    assert len(names) == len(set(names))
    # Of a Service 63; of the others 11 less, for what controllers append.
    assert all(len(name) <= (63 if kind == "Service" else 52) for kind, name in names)
