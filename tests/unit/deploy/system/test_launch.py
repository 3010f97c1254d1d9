import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy import cli, nginx
from deploy.jars import JarSet, JarsUnavailable
from deploy.kafka import brokers, java, program
from deploy.kafka.java import NoJava
from deploy.kafka.program import KafkaProgram
from deploy.system import launch
from deploy.system.launch import PreparationFailed, child_environment, command, pdeathsig_command
from deploy.system.state_dir import StateDir
from deploy.topology import ClientAccess, KafkaTopology, Mode, Options, Ports, Programs, sizes_of, slots
from tests.unit.deploy.topology.topologies import options_of

ROOT = str(Path(launch.__file__).resolve().parents[2])


def test_children_find_our_packages_from_anywhere(tmp_path: Path) -> None:
    env = child_environment({"PATH": os.defpath})
    done = subprocess.run([*command(), "--version"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("diem ")


def test_children_keep_the_paths_of_the_environment() -> None:
    env = child_environment({"PYTHONPATH": os.pathsep.join(["/a", ROOT, "/b"])})
    assert env["PYTHONPATH"].split(os.pathsep) == [ROOT, "/a", "/b"]


def test_installed_packages_are_not_put_before_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [ROOT])
    assert child_environment({"A": "b"}) == {"A": "b"}


def test_kafka_variables_of_the_environment_are_not_inherited() -> None:
    env = child_environment({"DIEM_KAFKA_BOOTSTRAP_SERVERS": "h:1", "DIEM_LOG_LEVEL": "info"})
    assert "DIEM_KAFKA_BOOTSTRAP_SERVERS" not in env
    assert env["DIEM_LOG_LEVEL"] == "info"


def test_third_party_programs_are_run_by_pdeathsig(tmp_path: Path) -> None:
    done = subprocess.run(
        pdeathsig_command(("/bin/echo", "hello")),
        cwd=tmp_path,
        env=child_environment({}),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"hello\n"


@pytest.mark.parametrize("process", ["websocket", "broadcast"])
def test_start_of_an_edge_process_imports_no_command_line_store_or_web_framework(process: str) -> None:
    heavy = {"typer", "click", "httpx", "starlette", "uvicorn", "sqlalchemy", "alembic", "aiosqlite"}
    program = (
        "import sys; from diem.process.program import program; "
        f"program({process!r}); print(*sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


Starts = Callable[..., tuple[int, str]]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Starts:
    """Call `diem up`, which must fail before it starts anything."""
    for name in [name for name in os.environ if name.startswith("DIEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["diem", "up", "--free-ports", *arguments])
        monkeypatch.setattr("deploy.cli.up.Up", None)
        with pytest.raises(SystemExit) as caught:
            cli.app()
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert isinstance(caught.value.code, int)
        return caught.value.code, captured.err

    return call


def found_nginx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nginx, "find", lambda: "/sbin/nginx")


def raising(error: Exception) -> Callable[..., Any]:
    def raise_it(*_arguments: object) -> Any:
        raise error

    return raise_it


def prepared(options: Options) -> Programs:
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(options.mode, sizes_of(options))}
    return launch.prepare(
        options.mode,
        options.state_dir,
        ports,
        lambda _done, _total: None,
        clients=options.clients,
        caches=options.public_reads,
    )


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.behind_nginx])
def test_missing_nginx_is_a_one_line_error_and_creates_nothing(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nginx, "PLACES", ())
    code, error = starts("--mode", mode, "--nginx")
    assert (code, "diem: nginx is not installed" in error) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_missing_java_is_a_one_line_error_and_creates_nothing(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setattr(java, "find", raising(NoJava()))
    code, error = starts("--mode", "x")
    assert (code, "diem: the local Kafka needs Java 17" in error) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_unavailable_jars_are_a_one_line_error(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setattr(java, "find", lambda: Path("/java"))
    monkeypatch.setattr(JarSet, "prepare", raising(JarsUnavailable("no network", "the local Kafka")))
    code, error = starts("--mode", "x")
    assert (code, "diem: the jars of the local Kafka are not available: no network" in error) == (2, True)


def test_state_directory_in_use_is_not_changed(starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_nginx(monkeypatch)
    with StateDir(tmp_path / ".diem").lock():
        code, error = starts("--mode", "x-broadcast", "--nginx")
    assert (code, "diem is already up" in error) == (1, True)
    assert not (tmp_path / ".diem" / "nginx").exists()


def test_mode_single_needs_no_other_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nginx, "find", raising(AssertionError()))
    options = options_of(Mode.SINGLE, tmp_path)
    launch.check_prerequisites(options)
    assert prepared(options).others == {}


def test_cluster_elsewhere_needs_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setattr(java, "find", raising(NoJava()))
    options = options_of(Mode.X, tmp_path, kafka=KafkaTopology(bootstrap_servers="h:1"))
    launch.check_prerequisites(options)
    assert list(prepared(options).others) == ["nginx"]


@pytest.mark.parametrize(
    ("reads", "settings", "caches"),
    [
        ("auto", {}, False),
        ("off", {}, False),
        ("on", {}, True),
        ("on", {"DIEM_DATA_ANONYMOUS_READS": "off"}, False),
        ("auto", {"DIEM_DATA_ANONYMOUS_READS": "on"}, True),
    ],
)
def test_nginx_has_a_cache_where_everybody_may_read_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reads: str, settings: dict[str, str], *, caches: bool
) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    access = ClientAccess(anonymous_reads=reads)
    options = options_of(Mode.X_BROADCAST, tmp_path / "state", access=access, settings={"data": settings})
    for _ in range(2):
        prepared(options)
        written = (tmp_path / "state" / "nginx" / "nginx.conf").read_text()
        assert ("proxy_cache_path" in written) == caches
        assert len([*tmp_path.glob("diem-nginx-*"), *tmp_path.glob("state/nginx/cache")]) == caches
    launch.clean(options)
    assert [path.name for path in (tmp_path / "state" / "nginx").iterdir()] == ["nginx.conf"]
    assert not [*tmp_path.glob("diem-nginx-*")]


def test_brokers_and_nginx_get_the_chosen_ports_and_end_with_us(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setattr(program, "prepare", lambda _progress: KafkaProgram(Path("/java"), (Path("/a.jar"),), None))
    options = options_of(Mode.X, tmp_path, per_address=200, kafka=KafkaTopology(brokers=3))
    others = prepared(options).others
    assert list(others) == ["nginx", "kafka-1", "kafka-2", "kafka-3"]
    for name, argv in others.items():
        assert argv[:3] == (sys.executable, "-m", "deploy.system.pdeathsig")
        assert argv[3] == ("/sbin/nginx" if name == "nginx" else "/java")
    written = (tmp_path / "nginx" / "nginx.conf").read_text()
    assert all(f"server 127.0.0.1:{8100 + n} " in written for n in range(1, 9))
    assert "listen 127.0.0.1:8000 reuseport;" in written
    assert "limit_conn clients 200;" in written
    assert "rate=200r/s" in written
    properties = (tmp_path / "kafka" / "kafka-3" / "server.properties").read_text()
    assert "listeners=USERS://127.0.0.1:9094,CONTROLLER://127.0.0.1:9098" in properties


def test_nginx_is_in_front_of_the_composites_of_mode_xz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_nginx(monkeypatch)
    options = options_of(Mode.XZ, tmp_path, 2, max_servers=3, kafka=KafkaTopology(bootstrap_servers="h:1"))
    assert list(prepared(options).others) == ["nginx"]
    written = (tmp_path / "nginx" / "nginx.conf").read_text()
    assert [f"server 127.0.0.1:{8600 + n} " in written for n in range(1, 5)] == [True, True, True, False]


@pytest.mark.parametrize("mode", [Mode.Z_CLIENT, Mode.Z_PROXY, Mode.Z_COMPOSITE])
def test_other_partitioned_modes_need_brokers_and_no_nginx(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode
) -> None:
    monkeypatch.setattr(nginx, "find", raising(AssertionError()))
    monkeypatch.setattr(java, "find", lambda: Path("/java"))
    monkeypatch.setattr(program, "prepare", lambda _progress: KafkaProgram(Path("/java"), (Path("/a.jar"),), None))
    options = options_of(mode, tmp_path, 2)
    launch.check_prerequisites(options)
    assert list(prepared(options).others) == ["kafka-1"]


def test_kafka_data_of_another_number_of_brokers_is_kept_and_reported(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setattr(java, "find", lambda: Path("/java"))
    monkeypatch.setattr(program, "prepare", lambda _progress: KafkaProgram(Path("/java"), (), None))
    brokers.write(brokers.plans(tmp_path / ".diem" / "kafka", [(1, 2)]))
    code, error = starts("--mode", "x", "--brokers", "3")
    assert (code, "is of one broker, not of 3 brokers" in error) == (2, True)


def test_missing_kafka_client_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_nginx(monkeypatch)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(
        PreparationFailed,
        match=r"^mode x needs aiokafka, which is not installed: pip install 'diem-realtime\[kafka\]'$",
    ):
        launch.check_prerequisites(options_of(Mode.X))


def test_missing_nginx_config_builder_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "deploy.nginx")
    monkeypatch.delattr("deploy.nginx")
    monkeypatch.setitem(sys.modules, "nginx.config.api", None)
    with pytest.raises(PreparationFailed, match=r"^mode x-broadcast needs nginx-config-builder"):
        launch.check_prerequisites(options_of(Mode.X_BROADCAST))
