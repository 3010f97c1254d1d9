import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import pytest

from deploy.system import launch
from deploy.topology import Mode, Planned, Programs, Topology
from diem.links.client_auth import may_be_anonymous
from diem.process.addresses import Ports
from diem.process.listeners import is_loopback
from diem.process.ports import PortReservations
from diem.process.settings import ProcessSettings
from metadata.settings import Settings as MetadataSettings
from proxy.settings import Settings as ProxySettings
from services.composite.main import _plan
from services.composite.plan import children
from services.composite.settings import Settings as CompositeSettings
from services.data.main import _anonymous_readers
from services.data.settings import Settings as DataSettings
from services.websocket.settings import Settings as WebSocketSettings
from tests.support.certificates import Authority
from tests.support.ports import free_port

COMPOSED = pytest.mark.parametrize("mode", Mode)
HERE = "127.0.0.1"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Topology]:
    """Have ``diem up`` start nothing; return the topologies that it would run."""
    found: list[Topology] = []

    class Up:
        def __init__(self, _timing: object, topology: Topology, *_others: object, **_more: object) -> None:
            found.append(topology)

        def run(self, _life: object) -> None:
            pass

    def serve(_life: object, main: Callable[[], Awaitable[None]]) -> int:
        main()
        return 0

    monkeypatch.setattr("deploy.cli.up.Up", Up)
    monkeypatch.setattr("diem.process.lifecycle.serve", serve)
    programs = Programs(("diem",), {"nginx": ("nginx",), "kafka-1": ("java",)})
    monkeypatch.setattr(launch, "check_prerequisites", lambda _options: None)
    monkeypatch.setattr(launch, "prepare", lambda *_, **_parts: programs)
    return found


@pytest.fixture
def composed(diem: Callable[..., int], found: list[Topology]) -> Callable[..., Topology]:
    """Return a function that calls ``diem up`` and returns what it would run."""

    def call(mode: Mode, *options: str) -> Topology:
        most = [] if mode is Mode.SINGLE else ["--max-servers", "2"]
        assert diem("up", "--free-ports", "--mode", mode, *most, *options) == 0
        return found.pop()

    return call


class Answer(NamedTuple):
    """Who needs a token at one process, and which tokens it accepts."""

    program_here: bool
    """A program of this machine is served without a token."""
    page_elsewhere: bool
    """So is a page in a browser of another machine."""
    keys: tuple[str, ...]
    issuers: tuple[str, ...]
    audience: str


SETTINGS: dict[str, Any] = {
    "websocket": WebSocketSettings,
    "proxy": ProxySettings,
    "composite": CompositeSettings,
    "metadata": MetadataSettings,
}


S = TypeVar("S", bound=ProcessSettings)


def load(settings: type[S], env: dict[str, str]) -> S:
    """Return the settings of a process with exactly this environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DIEM_")]:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        return settings.load()


def own_environment(process: Planned) -> dict[str, str]:
    return launch.child_environment(os.environ) | dict(process.env)


def answers(of: Topology) -> dict[str, Answer]:
    """Return the answer of each process with clients, those within composites among them."""
    found = {}
    for process in of.processes:
        env = own_environment(process)
        if process.process == "composite":
            plan = _plan(load(CompositeSettings, env), 8601)
            for child in children(plan, 1, lambda _name: Ports(1, 2)):
                if child.process in SETTINGS:
                    found[f"{process.name}/{child.name}"] = answer(child.process, env | dict(child.env))
        elif process.process in SETTINGS:
            found[process.name] = answer(process.process, env)
    return found


def answer(process: str, env: dict[str, str]) -> Answer:
    settings = load(SETTINGS[process], env)
    loopback = is_loopback(settings.host)
    return Answer(
        may_be_anonymous(settings.anonymous, HERE, loopback_bind=loopback, has_origin=False),
        may_be_anonymous(settings.anonymous, "192.0.2.7", loopback_bind=loopback, has_origin=True),
        tuple(settings.token_keys),
        tuple(settings.token_issuers),
        settings.token_audience,
    )


def reads_without_a_key(of: Topology) -> bool:
    (data,) = [process for process in of.processes if process.process == "data"]
    return _anonymous_readers(load(DataSettings, own_environment(data)))(HERE)


def roles(of: Topology) -> set[str]:
    return {name.rpartition("/")[2].partition("-")[0] for name in answers(of)}


Composed = Callable[..., Topology]


@COMPOSED
@pytest.mark.parametrize("named", ["websocket", "proxy"])
def test_all_who_have_clients_decide_alike_whichever_variable_says_how(
    mode: Mode, named: str, *, composed: Composed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(f"DIEM_{named.upper()}_ANONYMOUS", "off")
    monkeypatch.setenv(f"DIEM_{named.upper()}_TOKEN_KEYS", '["/acme.json"]')
    monkeypatch.setenv(f"DIEM_{named.upper()}_TOKEN_ISSUERS", '["acme", "diem"]')
    monkeypatch.setenv(f"DIEM_{named.upper()}_TOKEN_AUDIENCE", "market")
    up = composed(mode)
    expected = Answer(
        program_here=False,
        page_elsewhere=False,
        keys=(str(tmp_path / ".diem" / "token-keys.json"), "/acme.json"),
        issuers=("acme", "diem"),
        audience="market",
    )
    assert {name: each for name, each in answers(up).items() if each != expected} == {}
    assert roles(up) == {"websocket"} | (
        set() if not mode.partitioned else {"metadata"} if mode is Mode.Z_CLIENT else {"metadata", "proxy"}
    )


@COMPOSED
def test_by_default_all_serve_programs_of_this_machine_without_a_token(mode: Mode, composed: Composed) -> None:
    up = composed(mode)
    assert {(each.program_here, each.page_elsewhere) for each in answers(up).values()} == {(True, False)}
    assert reads_without_a_key(up)


@COMPOSED
def test_on_a_public_address_nobody_is_more_open_than_the_edge(mode: Mode, composed: Composed, tmp_path: Path) -> None:
    made = Authority(tmp_path).issue(["diem.example"])
    tls = ("--listen", "0.0.0.0", "--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
    up = composed(mode, *tls)
    assert {(each.program_here, each.page_elsewhere) for each in answers(up).values()} == {(mode.behind_nginx, False)}


@COMPOSED
@pytest.mark.parametrize("auto", [(), ("--anonymous", "auto")])
def test_behind_a_front_proxy_everybody_needs_a_token_or_a_key(
    mode: Mode, auto: tuple[str, ...], composed: Composed, capsys: pytest.CaptureFixture[str]
) -> None:
    up = composed(mode, "--front-proxy", "127.0.0.1/32", *auto)
    assert not any(each.program_here or each.page_elsewhere for each in answers(up).values())
    assert not reads_without_a_key(up)
    assert "behind --front-proxy, all clients need a token" in capsys.readouterr().out


@COMPOSED
def test_anonymous_of_the_command_line_is_that_of_all_even_behind_a_front_proxy(
    mode: Mode, composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIEM_PROXY_ANONYMOUS", "off")
    monkeypatch.setenv("DIEM_WEBSOCKET_ANONYMOUS", "auto")
    monkeypatch.setenv("DIEM_DATA_ANONYMOUS_READS", "on")
    up = composed(mode, "--front-proxy", "127.0.0.1/32", "--anonymous", "on")
    assert {(each.program_here, each.page_elsewhere) for each in answers(up).values()} == {(True, True)}
    assert reads_without_a_key(up)


def test_rules_that_differ_are_refused(
    diem: Callable[..., int],
    found: list[Topology],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DIEM_PROXY_ANONYMOUS", "off")
    monkeypatch.setenv("DIEM_WEBSOCKET_ANONYMOUS", "on")
    assert diem("up", "--free-ports") == 2
    assert not found
    assert "DIEM_WEBSOCKET_ANONYMOUS and DIEM_PROXY_ANONYMOUS differ" in capsys.readouterr().err


def test_ports_stay_reserved_and_files_private_until_it_ends(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    before = os.umask(0o022)

    def serve(_life: object, main: Callable[[], Awaitable[None]]) -> int:
        main()  # makes the object below
        with PortReservations() as other:
            assert seen
            assert not any(map(other.reserve, seen))
        assert os.umask(0o077) == 0o077, "what children make is their owner's alone"
        return 0

    class Up:
        def __init__(self, _timing: object, topology: Any, *_others: object, **_more: object) -> None:
            for process in topology.processes:
                seen.extend(port for port in process.ports[:2] if port is not None)

        def run(self, _life: object) -> None:
            pass

    monkeypatch.setattr("deploy.cli.up.Up", Up)
    monkeypatch.setattr("diem.process.lifecycle.serve", serve)
    try:
        assert diem("up", "--free-ports", "--quiet") == 0
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    with PortReservations() as later:
        assert all(map(later.reserve, seen))


def test_all_faults_of_the_configuration_are_shown_and_nothing_starts(
    diem: Callable[..., int], found: list[Topology], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "diem.toml").write_text('[[source]]\ntype = "simulation"\npaec = 1.0\nseed = "one"\n')
    assert diem("up") == 2
    err = capsys.readouterr().err
    assert "line 3, [[source]] 1: unknown field `paec` (did you mean `pace`?)" in err
    assert "line 4, [[source]] 1, seed: expected a whole number" in err
    assert found == []


def data_environment(of: Topology) -> dict[str, str]:
    (data,) = [process for process in of.processes if process.process == "data"]
    return dict(data.env)


def test_operator_page_has_a_port_and_the_data_service_leads_there(
    diem: Callable[..., int], found: list[Topology], capsys: pytest.CaptureFixture[str]
) -> None:
    assert diem("up", "--free-ports") == 0
    url = load(DataSettings, own_environment(found[0].processes[0])).operator_url or ""
    assert url == f"http://localhost:{urlsplit(url).port}/admin"
    port = free_port()
    assert diem("up", "--free-ports", "--admin-port", str(port)) == 0
    assert data_environment(found[1])["DIEM_DATA_OPERATOR_URL"] == f"http://localhost:{port}/admin"
    assert diem("up", "--free-ports", "--admin-port", "0") == 0
    assert "DIEM_DATA_OPERATOR_URL" not in data_environment(found[2])
    with PortReservations() as other:
        assert other.reserve(port)
        assert diem("up", "--free-ports", "--admin-port", str(port)) == 1
    assert f"port {port} on 127.0.0.1 is taken by another process" in capsys.readouterr().err


@pytest.mark.skipif("sys.platform != 'linux'")
@pytest.mark.parametrize(
    ("options", "is_there"),
    [
        ((), False),
        (("--nginx",), True),
        (("--front-proxy", "127.0.0.1"), True),
        (("--front-proxy", "127.0.0.1", "--no-nginx"), False),
    ],
)
def test_nginx_is_there_on_request_and_behind_front_proxies(
    composed: Composed, options: tuple[str, ...], *, is_there: bool
) -> None:
    found = composed(Mode.X_BROADCAST, "--anonymous", "on", *options)
    assert ("nginx" in {process.process for process in found.processes}) == is_there


def test_nginx_is_refused_in_front_of_a_single_server(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert diem("up", "--mode", "single", "--nginx") == 2
    assert capsys.readouterr().err == "diem: --nginx is for --mode x-broadcast, x, all-to-all, xz, not single\n"


@pytest.mark.skipif("sys.platform != 'linux'")
@pytest.mark.parametrize(
    ("cores", "options", "servers", "line"),
    [
        (2, (), 1, ""),
        (4, (), 4, "4 cores: 4 servers in mode x-broadcast, without Kafka; one server uses one core, and "),
        (4, ("--front-proxy", "127.0.0.1", "--anonymous", "on"), 4, "4 cores: 4 servers"),
        (4, ("--servers", "2"), 2, ""),
        (4, ("--mode", "x-broadcast"), 4, "4 cores: 4 servers in mode x-broadcast\n"),
    ],
)
def test_several_cores_have_a_server_each_at_one_port_without_nginx(
    cores: int,
    options: tuple[str, ...],
    servers: int,
    line: str,
    *,
    diem: Callable[..., int],
    found: list[Topology],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("deploy.cli.up.usable_cores", lambda: cores)
    assert diem("up", "--free-ports", *options) == 0
    (up,) = found
    running = [process for process in up.active(up.servers) if process.process == "websocket"]
    assert (up.servers, len(running), len({process.ports.public for process in running})) == (servers, servers, 1)
    assert "nginx" not in {process.process for process in up.processes}
    out = capsys.readouterr().out
    assert line in out
    assert ("cores:" in out) == bool(line)
