import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from diem.errors import ConfigurationError, DiemError
from diem.process import lifecycle, metrics
from diem.process.lifecycle import Lifecycle, exit_reason, run
from diem.process.settings import ProcessSettings
from tests.support.patience import PATIENCE_S, until

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def settings() -> ProcessSettings:
    return ProcessSettings(log_format="console", drain_seconds=5)


def test_requested_stop_is_exit_0(settings: ProcessSettings) -> None:
    async def main(_settings: ProcessSettings, life: Lifecycle) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await life.stopping.wait()
        assert life.reason == "SIGTERM"

    assert run(settings, main) == 0


def test_main_gets_settings_and_scaled_drain(settings: ProcessSettings) -> None:
    async def main(given: ProcessSettings, life: Lifecycle) -> None:
        assert given is slow
        assert life.drain_seconds == 10

    slow = settings.model_copy(update={"time_factor": 2.0})
    assert run(slow, main) == 0


def test_service_links_are_a_line_for_debugging(
    settings: ProcessSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> None:
        pass

    monkeypatch.setenv("DIEM_DATA_SERVICE_HOST", "10.96.0.7")
    assert run(settings, main) == 0
    assert "DIEM_DATA_SERVICE_HOST" not in capsys.readouterr().err
    assert run(settings.model_copy(update={"log_level": "debug"}), main) == 0
    assert "DIEM_DATA_SERVICE_HOST" in capsys.readouterr().err


def test_files_of_a_process_are_its_owners_alone(settings: ProcessSettings, tmp_path: Path) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> None:
        (tmp_path / "file").touch(0o666)
        (tmp_path / "directory").mkdir()

    before = os.umask(0o022)
    try:
        assert run(settings, main) == 0
        assert os.umask(0o022) == 0o022, "it is its caller's own again"
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "directory")] == [0o600, 0o700]


def test_known_error_is_one_line_and_exit_1(settings: ProcessSettings, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> NoReturn:
        raise DiemError("the store is gone")

    assert run(settings, main) == 1
    assert capsys.readouterr().err == "diem: the store is gone\n"


def test_configuration_error_is_exit_2(settings: ProcessSettings, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> NoReturn:
        async with asyncio.TaskGroup():
            raise ConfigurationError("two sources claim /x")

    assert run(settings, main) == 2
    assert capsys.readouterr().err == "diem: two sources claim /x\n"


def test_unexpected_error_is_logged_with_its_traceback_and_exit_70(
    settings: ProcessSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> NoReturn:
        raise ZeroDivisionError

    assert run(settings, main) == 70
    assert "Traceback" in capsys.readouterr().err


def test_known_error_does_not_hide_an_unexpected_one(settings: ProcessSettings) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> NoReturn:
        raise ExceptionGroup("both", [DiemError("known"), KeyError("unknown")])

    assert run(settings, main) == 70


def test_main_that_does_not_drain_in_time_is_cancelled(settings: ProcessSettings) -> None:
    cleaned = []

    async def main(_settings: ProcessSettings, life: Lifecycle) -> None:
        life.stop("test")
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    assert run(settings.model_copy(update={"drain_seconds": 0}), main) == 0
    assert cleaned


def test_second_signal_ends_at_once(settings: ProcessSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    ended = asyncio.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(lifecycle, "_exit_now", end)

    async def main(_settings: ProcessSettings, life: Lifecycle) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await life.stopping.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await ended.wait()

    assert run(settings, main) == 0
    assert codes == [130]


def test_end_of_standard_input_stops_a_supervised_process_quickly(
    settings: ProcessSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_end, write_end = os.pipe()

    async def main(_settings: ProcessSettings, life: Lifecycle) -> None:
        os.write(write_end, b"x")
        await asyncio.sleep(0)
        assert not life.stopping.is_set()
        os.close(write_end)
        await life.stopping.wait()
        assert life.reason == "the supervisor is gone"
        assert life.drain_seconds == 1

    with open(read_end) as stdin:  # noqa: PTH123
        monkeypatch.setattr("sys.__stdin__", stdin)
        assert run(settings.model_copy(update={"supervised": True}), main) == 0


def test_end_of_a_supervisor_that_has_not_read_a_heartbeat_stops_a_process(
    settings: ProcessSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()

    async def main(_settings: ProcessSettings, life: Lifecycle) -> None:
        assert ours.recv(1, socket.MSG_PEEK)
        ours.close()
        async with asyncio.timeout(PATIENCE_S):
            await life.stopping.wait()
        assert life.reason == "the supervisor is gone"

    with theirs.makefile("r") as stdin:
        theirs.close()
        monkeypatch.setenv("WATCHDOG_USEC", "12000000")
        monkeypatch.setattr("sys.__stdin__", stdin)
        assert run(settings.model_copy(update={"supervised": True}), main) == 0


def test_only_the_first_request_to_stop_counts() -> None:
    life = Lifecycle(drain_seconds=5)
    life.stop("first", drain_seconds=60)
    life.stop("second", drain_seconds=0)
    assert (life.reason, life.drain_seconds) == ("first", 5)


async def test_pause_ends_early_when_the_process_is_to_stop() -> None:
    life = Lifecycle(drain_seconds=5)
    await life.pause(0.0)
    life.stop("now")
    async with asyncio.timeout(PATIENCE_S):
        await life.pause(1000.0)


def test_loop_lag_is_a_metric_while_a_process_runs(settings: ProcessSettings) -> None:
    async def main(_settings: ProcessSettings, _life: Lifecycle) -> None:
        assert b"diem_loop_lag_seconds" in metrics.render()[0]

    assert run(settings, main) == 0
    assert b"diem_loop_lag_seconds" not in metrics.render()[0]


def test_sighup_calls_everything_that_reloads_and_the_process_goes_on(settings: ProcessSettings) -> None:
    called: list[str] = []

    async def main(_settings: ProcessSettings, life: Lifecycle) -> None:
        life.on_reload(lambda: called.append("first"))
        life.on_reload(lambda: called.append("second"))
        for times in (1, 2):
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                while len(called) < 2 * times:
                    await asyncio.sleep(0.01)

    assert run(settings, main) == 0
    assert called == ["first", "second"] * 2
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_exit_codes_are_readable() -> None:
    assert [exit_reason(code) for code in (0, 1, -9, -1000)] == [
        "exit 0",
        "exit 1",
        "killed by SIGKILL",
        "killed by signal 1000",
    ]


async def test_the_lag_is_measured_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PERIOD_S", 0.001)
    with lifecycle.measuring_lag() as lag:
        first = lag._due
        await until(lambda: lag._due > first)
    last = lag._due
    await asyncio.sleep(0.01)
    assert lag._due == last
