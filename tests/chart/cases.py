"""The values with which the chart is rendered, and what comes out."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "chart"
BUILT: Final = ROOT / "build" / "chart"
HELM: Final = BUILT / "bin" / "helm"
KUBECONFORM: Final = BUILT / "bin" / "kubeconform"
RELEASE: Final = "diem"
NAMESPACE: Final = "updates"
KUBERNETES: Final = "1.36.3"
needs_tools = pytest.mark.skipif(not os.environ.get("DIEM_CHART"), reason="needs Go's tools: make chart")

MODES: Final = ("single", "x-broadcast", "x", "z-proxy", "z-composite", "xz", "z-client")
CUSTOM: Final = frozenset({"PodMonitor", "ScaledObject"})
"""Kinds that Kubernetes does not have itself: there is no schema of them here."""
Object = dict[str, Any]


def values(mode: str, **others: Any) -> Object:
    """Return the least values with which a mode is rendered."""
    kafka = {} if mode in {"single", "x-broadcast"} else {"kafka": {"bootstrapServers": "kafka-bootstrap:9092"}}
    client = {"zClient": {"domain": "ws.example.com", "tlsSecret": "ws-tls"}} if mode == "z-client" else {}
    proxies = {"trustedProxies": ["10.244.0.0/16"]}
    return {"mode": mode, "url": "https://diem.example.com", **proxies, **kafka, **client, **others}


_EVERYTHING: Final = {
    "access": {"anonymous": "on", "anonymousReads": "on", "origins": ["https://app.example.com"]},
    "trustedProxies": ["10.0.0.0/8"],
    "drainSeconds": 12.5,
    "kafka": {
        "bootstrapServers": "events-kafka-bootstrap:9093",
        "partitions": 24,
        "replication": 3,
        "securityProtocol": "SASL_SSL",
        "sasl": {"username": "diem", "secret": "diem", "users": {"data": {"username": "writer", "secret": "writer"}}},
        "tls": {"caSecret": "events-cluster-ca-cert", "clientSecret": "diem-certificate"},
    },
    "traffic": {"sink": "kafka"},
    "data": {
        "replicas": 2,
        "postgres": {"secret": "postgres"},
        "config": '[[source]]\nname = "market"\n',
        "persistence": {"accessMode": "ReadWriteMany", "storageClass": "nfs"},
        "env": {"DIEM_DATA_HISTORY_DAYS": "30"},
    },
    "ingress": {"className": "nginx", "tlsSecret": "diem-tls"},
    "metrics": {"enabled": True, "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]},
    "pipeline": {"enabled": True},
    "antiAffinity": "required",
    "image": {"repository": "registry.example.com/diem", "pullSecrets": ["registry"]},
    "nodeSelector": {"pool": "updates"},
    "tolerations": [{"key": "updates", "operator": "Exists"}],
    "priorityClassName": "high",
    "podAnnotations": {"note": "one"},
}

CASES: Final = {
    **{mode: values(mode) for mode in MODES},
    **{f"{mode}, everything": values(mode, **_EVERYTHING) for mode in MODES},
    "z-proxy, plans and hpa": values(
        "z-proxy",
        **_EVERYTHING | {"autoscaling": {"kind": "hpa"}, "pipeline": {"enabled": True, "plan": {"enabled": True}}},
    ),
    "xz, keda": values("xz", **_EVERYTHING | {"autoscaling": {"kind": "keda"}}),
    "x, IPv6, no ingress": values(
        "x", listen="::", ingress={"enabled": False}, trustedProxies=[], networkPolicy={"enabled": False}
    ),
}
"""Values by name of the case."""


class Failed(NamedTuple):
    """What a program printed that refused."""

    text: str


def helm(*arguments: str, given: Object) -> str | Failed:
    """Run helm with values; return its output."""
    argv: list[str | Path] = [HELM, *arguments, "--values", "-"]
    env = {"PATH": os.environ["PATH"], "HOME": str(BUILT)}
    done = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, check=False, env=env)
    return done.stdout if done.returncode == 0 else Failed(done.stderr)


def render(given: Object, release: str = RELEASE, chart: Path = CHART) -> str | Failed:
    """Return the objects of the chart as YAML."""
    return helm("template", release, str(chart), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, given=given)


def objects(given: Object, chart: Path = CHART) -> list[Object]:
    """Return the objects of the chart."""
    text = render(given, chart=chart)
    assert isinstance(text, str), text.text
    return [each for each in yaml.safe_load_all(text) if each]


def pod_specs(rendered: list[Object]) -> dict[str, Object]:
    """Return the specs of pods by component."""
    found = {}
    for each in rendered:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template["spec"]
    return found


def containers(spec: Object) -> list[Object]:
    """Return all containers of a pod."""
    return [*spec.get("initContainers", []), *spec["containers"]]
