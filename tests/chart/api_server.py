"""An API server of Kubernetes with its etcd, on this machine: it judges objects, and runs nothing."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.chart.cases import BUILT, NAMESPACE, Object
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

PROGRAM: Final = BUILT / "bin" / "kube-apiserver"
_PATHS: Final = {"v1": "api/v1"}
_PLURALS: Final = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}


class ApiServer:
    """Judges objects as if they were created."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def create(self, each: Object, *, dry: bool = True) -> httpx.Response:
        """Create an object, or only validate it; unknown fields are errors."""
        group, kind = each["apiVersion"], each["kind"]
        plural = _PLURALS.get(kind, f"{kind.lower()}s")
        scope = "" if kind == "Namespace" else f"namespaces/{NAMESPACE}/"
        params = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
        return self._http.post(f"/{_PATHS.get(group, f'apis/{group}')}/{scope}{plural}", json=each, params=params)

    def ready(self) -> bool:
        """Return whether it serves."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run both while the block runs, with a namespace in which pods with privileges are warned of."""
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
            labels = {"pod-security.kubernetes.io/warn": "restricted"}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
            server.create(namespace, dry=False).raise_for_status()
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
