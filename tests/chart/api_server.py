"""An API server of Kubernetes with its etcd, on this machine: it judges objects and stores them, and runs nothing."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from tests.chart.cases import BUILT, Object
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

PROGRAM: Final = BUILT / "bin" / "kube-apiserver"
_PATHS: Final = {"v1": "api/v1"}
_PLURALS: Final = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses", "PriorityClass": "priorityclasses"}
_CLUSTER_WIDE: Final = frozenset({"Namespace", "PriorityClass"})
_STRICT: Final = {"fieldValidation": "Strict"}
"""Unknown fields, and those that are there twice, are errors."""


class ApiServer:
    """What ``kubectl`` and helm send to an API server."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def create(self, each: Object, namespace: str, *, dry: bool = False) -> httpx.Response:
        """Create an object; with ``dry`` it is admitted and validated, and not stored."""
        return self._http.post(_collection(each, namespace), json=each, params=_STRICT | _dry(dry))

    def apply(self, each: Object, namespace: str, *, dry: bool = False) -> httpx.Response:
        """Change an object into this one, or create it, as ``kubectl apply --server-side`` does."""
        return self._http.patch(
            f"{_collection(each, namespace)}/{each['metadata']['name']}",
            content=orjson.dumps(each),
            headers={"Content-Type": "application/apply-patch+yaml"},
            params={"fieldManager": "helm", "force": "true"} | _STRICT | _dry(dry),
        )

    def make_namespace(self, name: str) -> None:
        """Make a namespace in which pods that are not ``restricted`` are refused, and their workloads warned of."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("warn", "enforce")}
        self.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, name
        ).raise_for_status()

    def ready(self) -> bool:
        """Return whether it serves."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False


def _collection(each: Object, namespace: str) -> str:
    group, kind = each["apiVersion"], each["kind"]
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    scope = "" if kind in _CLUSTER_WIDE else f"namespaces/{namespace}/"
    return f"/{_PATHS.get(group, f'apis/{group}')}/{scope}{plural}"


def _dry(wanted: bool) -> dict[str, str]:
    return {"dryRun": "All"} if wanted else {}


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run both while the block runs."""
    etcd = shutil.which("etcd")
    assert etcd, "etcd is not installed: make chart API=1"
    store, peers, port = free_port(), free_port(), free_port()
    (folder / "tokens").write_text('secret,admin,1,"system:masters"\n')
    subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)
    urls = {"client": f"http://127.0.0.1:{store}", "peer": f"http://127.0.0.1:{peers}"}
    commands: list[list[Any]] = [
        [etcd, "--data-dir", folder / "etcd", "--name", "one", "--initial-cluster", f"one={urls['peer']}",
         *(word for name, url in urls.items() for word in (f"--listen-{name}-urls", url)),
         "--advertise-client-urls", urls["client"], "--initial-advertise-peer-urls", urls["peer"]],
        [PROGRAM, "--etcd-servers", urls["client"], "--cert-dir", folder / "certificates", "--secure-port", str(port),
         "--bind-address", "127.0.0.1", "--token-auth-file", folder / "tokens", "--authorization-mode", "RBAC",
         "--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.0.0.0/16",
         "--service-account-key-file", folder / "accounts.key",
         "--service-account-signing-key-file", folder / "accounts.key",
         # For pods, which there are none of; the default is the address of the default route.
         "--advertise-address", "203.0.113.1", "--endpoint-reconciler-type", "none",
         "--allow-privileged",
         # Controllers make accounts, and there are none.
         "--disable-admission-plugins", "ServiceAccount"],
    ]  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    try:
        for argv in commands:
            with (folder / f"{Path(argv[0]).name}.log").open("wb") as log:
                running.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log, cwd=folder))
        headers = {"Authorization": "Bearer secret"}
        # Its certificate is made at the start, by itself.
        with httpx.Client(
            base_url=f"https://127.0.0.1:{port}",
            headers=headers,
            verify=False,  # noqa: S501
            trust_env=False,
            timeout=PATIENCE_S,
        ) as http:
            server = ApiServer(http)
            _wait(server, running, folder)
            yield server
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(PATIENCE_S)


def _wait(server: ApiServer, running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    until = time.monotonic() + 4 * PATIENCE_S
    while not server.ready():
        logs = "\n".join(file.read_text()[-2000:] for file in folder.glob("*.log"))
        assert all(process.poll() is None for process in running), logs
        assert time.monotonic() < until, logs
        time.sleep(0.2)
