"""``diem config MODE --hosts``; the reference of settings is tested with the other commands."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.hosts import env_file, verification

Diem = Callable[..., int]
HOSTS = ("--hosts", "a=10.0.0.1,b=10.0.0.2", "--out", "out")
PUBLIC = ("--front-proxy", "10.0.0.9", "--origin", "https://app.example")
KAFKA = ("--bootstrap-servers", "k1:9092,k2:9092")
STORE = ("--database-url", "postgresql://u:p@db/diem")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nginx and systemd check nothing: another test has them do so."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("deploy.nginx.PLACES", ())


def variables(host: str, process: str) -> dict[str, str]:
    return env_file.parse(Path(f"out/hosts/{host}/etc/{process}.env").read_text())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["x", "--out", "out"], "--out goes with --hosts"),
        (["websocket", *HOSTS], "with --hosts, config takes a mode: single, x-broadcast, x, "),
        (["x", "--hosts", "10.0.0.1"], "--hosts needs --out"),
        (["all-to-all", *HOSTS, *PUBLIC], "all-to-all is a baseline"),
        (["x", *HOSTS, *PUBLIC], "mode x uses a Kafka of yours: --bootstrap-servers HOST:PORT,..."),
        (["x", *HOSTS, *KAFKA], "--listen 0.0.0.0 would send everything unencrypted: add --tls-certificate"),
        (["x", *HOSTS, *KAFKA, "--front-proxy", "10.0.0.9"], "--origin https://NAME is needed: the front proxy has"),
        (["x", *HOSTS, *KAFKA, "--tls-certificate", "/c.pem"], "--origin https://NAME is needed: the certificate is"),
        (["x", *HOSTS, *KAFKA, "--tls-certificate", "c.pem"], "--tls-certificate is an absolute path on the hosts"),
        (["x", *HOSTS, *KAFKA, *PUBLIC, "--state-dir", "/a b"], "--state-dir is an absolute path on the hosts"),
        (["x", *HOSTS, *KAFKA, *PUBLIC, "--listen", "0.0.0.0:443"], "--listen is an address here: its port is --port"),
        (["x", *HOSTS, *KAFKA, *PUBLIC, "--standby", "b"], "needs a store that both reach: --database-url postgresql:"),
        (["x", *HOSTS, *KAFKA, *PUBLIC, "--security-protocol", "SASL_SSL"], "SASL needs DIEM_KAFKA_SASL_USERNAME"),
        (["x", *HOSTS, *KAFKA, *PUBLIC, "--set", "websocket-9:A=1"], "--set: no process is called 'websocket-9' here"),
        (["x", *HOSTS, *KAFKA, *PUBLIC, "--hot", "/a"], "--hot is for partitioned modes"),
        (["x", "--hosts", "hosts.toml", "--out", "out"], "--hosts hosts.toml: No such file or directory"),
    ],
)
def test_every_error_is_one_line_and_writes_nothing(
    diem: Diem, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert diem("config", *arguments) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert len(error.splitlines()) == 1
    assert not Path("out").exists()


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize(
    "arguments",
    [
        ["single", "--standby", "b", *STORE],
        ["x-broadcast", "--standby", "b", *STORE],
        ["x", *KAFKA, "--servers", "3", "--max-servers", "4"],
        ["z-client", *KAFKA, "--clones", "2"],
        ["z-proxy", *KAFKA, "--proxy", "shared", "--hot", "/a"],
        ["z-composite", *KAFKA, "--servers", "3"],
        ["xz", *KAFKA, "--clones", "3"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_settings_of_every_mode_are_accepted_by_its_processes(diem: Diem, arguments: list[str]) -> None:
    assert diem("config", *arguments, *HOSTS, *PUBLIC) == 0


@pytest.mark.usefixtures("no_programs")
def test_what_is_given_reaches_the_processes(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    sources = Path("mine.toml")
    sources.write_text("source = []\n")
    more = ["--partitions", "24", "--security-protocol", "SASL_SSL", "--sasl-username", "diem"]
    more += ["--sasl-password-file", "/etc/diem/kafka.password", "--config", str(sources), *STORE]
    more += ["--set", "websocket-1:DIEM_LOG_LEVEL=debug", "--anonymous", "on", "--drain-seconds", "25"]
    assert diem("config", "x", *HOSTS, *PUBLIC, *KAFKA, *more) == 0
    out = capsys.readouterr()
    assert "4 services on 2 hosts: read out/README.txt" in out.out
    assert "not checked, because it is not installed here: nginx and systemd-analyze" in out.err
    data, server = variables("a", "data"), variables("b", "websocket-1")
    assert data["DIEM_DATA_DATABASE_URL"] == STORE[1]
    assert data["DIEM_DATA_CONFIG"] == "/etc/diem/diem.toml"
    assert Path("out/hosts/a/etc/diem.toml").read_text() == "source = []\n"
    assert data["DIEM_KAFKA_PARTITIONS"] == "24"
    assert server["DIEM_KAFKA_SASL_PASSWORD_FILE"] == "/etc/diem/kafka.password"
    assert (server["DIEM_LOG_LEVEL"], server["DIEM_WEBSOCKET_ANONYMOUS"]) == ("debug", "on")
    assert json.loads(server["DIEM_WEBSOCKET_ORIGINS"])[0] == "https://app.example"
    assert "TimeoutStopSec=35" in Path("out/hosts/b/systemd/diem@.service").read_text()


@pytest.mark.usefixtures("no_programs")
def test_setting_that_a_process_would_not_accept_is_named_with_its_host(
    diem: Diem, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--set", "websocket-1:DIEM_WEBSOCKET_SUBSCRIPTIONS=many", "--set", "data:DIEM_DATA_HISTORY=1"]
    assert diem("config", "x", *HOSTS, *PUBLIC, *KAFKA, *wrong) == 2
    lines = capsys.readouterr().err
    assert "b, websocket-1: DIEM_WEBSOCKET_SUBSCRIPTIONS: input should be a valid integer" in lines
    assert "a, data: DIEM_DATA_HISTORY: no such setting" in lines


@pytest.mark.parametrize("directive", ["Restart=on-failure", "MemoryMax=1024M", "listen 0.0.0.0:8000"])
def test_systemd_and_nginx_read_what_was_written(
    diem: Diem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, directive: str
) -> None:
    arguments = ("config", "x", *HOSTS, *PUBLIC, *KAFKA, "--tls-certificate", "/etc/diem/tls.pem")
    assert diem(*arguments) == 0
    missing = capsys.readouterr().err
    program = "nginx" if directive.startswith("listen") else verification.VERIFY[0]
    if program in missing:
        pytest.skip(missing)
    write = Path.write_text
    monkeypatch.setattr(
        Path, "write_text", lambda path, text, **more: write(path, text.replace(directive, "Nonsense=1 {"), **more)
    )
    assert diem(*arguments) == 2
    assert "Nonsense" in (error := capsys.readouterr().err) or "nginx.conf: " in error
