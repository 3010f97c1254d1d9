import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from diem.process.supervisor import ChildEvent, ChildState, Spec, Supervisor
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.stalls import stalls

SH = "/bin/sh"
IDLE = "echo up; exec cat"
"""A child that ends when its standard input does."""


def script(name: str, text: str, tmp_path: Path, stage: int = 0) -> Spec:
    return Spec(name, (SH, "-c", text), os.environ, tmp_path / f"{name}.log", stage)


class Events:
    """Records events and lets a test wait for the next one of a kind."""

    def __init__(self) -> None:
        self.all: list[ChildEvent] = []
        self._new = asyncio.Condition()
        self._notify: set[asyncio.Task[None]] = set()

    def __call__(self, event: ChildEvent) -> None:
        self.all.append(event)
        task = asyncio.ensure_future(self._wake())
        self._notify.add(task)
        task.add_done_callback(self._notify.discard)

    async def _wake(self) -> None:
        async with self._new:
            self._new.notify_all()

    async def until(self, condition: Callable[[ChildEvent], bool], count: int = 1) -> list[ChildEvent]:
        def found() -> list[ChildEvent]:
            return [event for event in self.all if condition(event)]

        async with asyncio.timeout(PATIENCE_S), self._new:
            await self._new.wait_for(lambda: len(found()) >= count)
        return found()

    def kinds(self) -> list[tuple[str, str]]:
        return [(event.name, event.kind) for event in self.all]


@asynccontextmanager
async def supervised(*specs: Spec) -> AsyncIterator[tuple[Supervisor, Events]]:
    events = Events()
    supervisor = Supervisor(specs, on_event=events)
    supervisor.start()
    try:
        yield supervisor, events
    finally:
        await supervisor.stop(5)
        assert all(status.pid is None for status in supervisor.status())


async def test_child_runs_with_its_output_in_its_log(tmp_path: Path) -> None:
    async with supervised(script("a", "echo out; echo err >&2; exec cat", tmp_path)) as (supervisor, events):
        (started,) = await events.until(lambda e: e.kind == "started")
        (status,) = supervisor.status()
        assert (status.state, status.pid, status.restarts) == (ChildState.RUNNING, started.pid, 0)
        assert status.uptime_seconds >= 0
    assert supervisor.status()[0].state is ChildState.STOPPED
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600


async def test_killed_child_is_restarted_at_once(tmp_path: Path) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (supervisor, events):
        (first,) = await events.until(lambda e: e.kind == "started")
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        _, second = await events.until(lambda e: e.kind == "started", 2)
        (died,) = await events.until(lambda e: e.kind == "died")
        assert died.code == -signal.SIGKILL
        assert died.delay_s == 0
        assert second.pid != first.pid
        assert supervisor.status()[0].restarts == 1


async def test_child_that_ends_by_itself_is_restarted_with_a_delay_from_the_second_time(tmp_path: Path) -> None:
    async with supervised(script("a", "exit 3", tmp_path)) as (_, events):
        died = await events.until(lambda e: e.kind == "died", 3)
        assert [event.code for event in died[:3]] == [3, 3, 3]
        assert died[0].delay_s == 0 < died[1].delay_s <= 0.5


async def test_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    async with supervised(script("a", "exit 2", tmp_path)) as (supervisor, events):
        (failed,) = await events.until(lambda e: e.kind == "failed")
        assert failed.code == 2
        await supervisor.wait()
        assert supervisor.status()[0].state is ChildState.FAILED
        assert ("a", "died") not in events.kinds()


async def test_program_that_does_not_exist_counts_as_a_death(tmp_path: Path) -> None:
    async with supervised(Spec("a", (str(tmp_path / "none"),), {})) as (_, events):
        died = await events.until(lambda e: e.kind == "died")
        assert died[0].code == 127


async def test_time_since_the_last_exit_is_known(tmp_path: Path) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (supervisor, events):
        (started,) = await events.until(lambda e: e.kind == "started")
        assert supervisor.status()[0].last_exit_seconds is None
        assert started.pid is not None
        os.kill(started.pid, signal.SIGKILL)
        await events.until(lambda e: e.kind == "started", 2)
        before = supervisor.status()[0].last_exit_seconds
        assert before is not None
        assert 0 <= before <= PATIENCE_S


async def test_stages_stop_from_the_highest_to_the_lowest(tmp_path: Path) -> None:
    specs = [script(name, IDLE, tmp_path, stage) for name, stage in (("data", 0), ("node", 1), ("edge", 2))]
    async with supervised(*specs) as (_, events):
        await events.until(lambda e: e.kind == "started", 3)
    stopped = [name for name, kind in events.kinds() if kind == "stopped"]
    assert stopped == ["edge", "node", "data"]


async def test_child_that_ignores_sigterm_is_killed_with_its_own_children(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; sleep 60 & echo $! > $0.pid; while :; do wait; done"
    spec = Spec("a", (SH, "-c", stubborn, str(tmp_path / "a")), os.environ)
    events = Events()
    supervisor = Supervisor([spec], on_event=events)
    supervisor.start()
    await events.until(lambda e: e.kind == "started")
    await until(lambda: (tmp_path / "a.pid").exists() and (tmp_path / "a.pid").read_text().strip() != "")
    grandchild = int((tmp_path / "a.pid").read_text())
    await supervisor.stop(0.05)
    assert ("a", "killed") in events.kinds()
    assert supervisor.status()[0].last_exit == -signal.SIGKILL
    await until(lambda: not _alive(grandchild))


async def test_stop_does_not_wait_for_a_restart_delay(tmp_path: Path) -> None:
    async with supervised(script("a", "exit 1", tmp_path)) as (supervisor, events):
        await events.until(lambda e: e.kind == "died", 4)
        async with stalls() as counted:
            began = time.monotonic()
            await supervisor.stop(5)
            assert time.monotonic() - began - counted.seconds < 2 * FACTOR
        assert supervisor.status()[0].state is ChildState.STOPPED


async def test_stop_right_after_start_leaves_nothing_running(tmp_path: Path) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (supervisor, _):
        await supervisor.stop(5)
    assert supervisor.status()[0].pid is None


async def test_children_see_the_end_of_their_input_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    program = """
import asyncio, os, pathlib, sys
from diem.process.supervisor import Spec
from diem.process.supervisor import Supervisor

async def main() -> None:
    here = pathlib.Path(sys.argv[1])
    text = f"echo $$ > {here}/pid; cat > /dev/null; echo ended > {here}/ended"
    Supervisor([Spec(name="a", argv=("/bin/sh", "-c", text), env=os.environ)]).start()
    await asyncio.Event().wait()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path))
    await until((tmp_path / "pid").exists)
    process.kill()
    await process.wait()
    await until((tmp_path / "ended").exists)


async def test_added_child_runs_and_a_removed_one_is_gone_while_the_others_stay(tmp_path: Path) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (supervisor, events):
        await events.until(lambda e: e.kind == "started")
        supervisor.add(script("b", IDLE, tmp_path))
        await events.until(lambda e: e.kind == "started", 2)
        a, b = supervisor.status()
        assert (b.name, b.state) == ("b", ChildState.RUNNING)
        await supervisor.remove("b", 5)
        assert [(s.name, s.pid) for s in supervisor.status()] == [("a", a.pid)]
        assert b.pid is not None
        assert not _alive(b.pid)
        with pytest.raises(KeyError):
            await supervisor.remove("b", 5)
        supervisor.add(script("b", IDLE, tmp_path))
        await events.until(lambda e: e.kind == "started", 3)


async def test_removed_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    text = "trap '' TERM; echo up; while :; do read line || sleep 0.1; done"
    async with supervised(script("a", text, tmp_path)) as (supervisor, events):
        await events.until(lambda e: e.kind == "started")
        await until(lambda: (tmp_path / "a.log").read_text() == "up\n")
        await supervisor.remove("a", 0.05)
        assert ("a", "killed") in events.kinds()
        assert supervisor.status() == []


async def test_child_that_has_failed_can_be_removed_and_come_back(tmp_path: Path) -> None:
    async with supervised(script("a", "exit 2", tmp_path)) as (supervisor, events):
        await events.until(lambda e: e.kind == "failed")
        await supervisor.remove("a", 5)
        supervisor.add(script("a", IDLE, tmp_path))
        await events.until(lambda e: e.kind == "started", 2)
        assert supervisor.status()[0].state is ChildState.RUNNING


async def test_name_is_added_once_and_nothing_is_added_to_a_stopped_supervisor(tmp_path: Path) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (supervisor, _):
        with pytest.raises(ValueError, match="called a"):
            supervisor.add(script("a", IDLE, tmp_path))
        await supervisor.stop(5)
        with pytest.raises(RuntimeError, match="stopping"):
            supervisor.add(script("b", IDLE, tmp_path))


async def test_added_child_stops_with_its_stage(tmp_path: Path) -> None:
    async with supervised(script("data", IDLE, tmp_path, 0)) as (supervisor, events):
        supervisor.add(script("edge", IDLE, tmp_path, 2))
        await events.until(lambda e: e.kind == "started", 2)
    assert [name for name, kind in events.kinds() if kind == "stopped"] == ["edge", "data"]


@pytest.mark.parametrize("sweep", [True, False])
async def test_sweep_kills_the_rest_of_a_dead_childs_process_group(tmp_path: Path, sweep: bool) -> None:
    text = "sleep 600 & echo $! >> $0.pids; exec cat"
    spec = Spec("a", (SH, "-c", text, str(tmp_path / "a")), os.environ, sweep=sweep)
    pids = tmp_path / "a.pids"
    async with supervised(spec) as (_, events):
        await until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        (first,) = await events.until(lambda e: e.kind == "started")
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        await events.until(lambda e: e.kind == "started", 2)
        orphan = int(pids.read_text().split()[0])
        if sweep:
            await until(lambda: not _alive(orphan))
        else:
            assert _alive(orphan)
        await until(lambda: pids.read_text().count("\n") == 2)
    for pid in (int(line) for line in pids.read_text().split()):
        if not sweep:
            os.kill(pid, signal.SIGKILL)


async def test_listener_that_raises_is_logged_and_the_child_is_kept_all_the_same(tmp_path: Path) -> None:
    seen: list[ChildEvent] = []

    def listener(event: ChildEvent) -> None:
        seen.append(event)
        raise OSError("disk full")

    supervisor = Supervisor([script("a", IDLE, tmp_path)], on_event=listener)
    with structlog.testing.capture_logs() as logged:
        supervisor.start()
        await until(lambda: len(seen) == 1)
        assert seen[0].pid is not None
        os.kill(seen[0].pid, signal.SIGKILL)
        await until(lambda: [event.kind for event in seen] == ["started", "died", "started"])
        await supervisor.stop(5)
    assert supervisor.status()[0].state is ChildState.STOPPED
    assert {(entry["event"], entry["child"]) for entry in logged} == {("listener failed", "a")}
    assert [entry["kind"] for entry in logged] == [event.kind for event in seen]


async def test_child_whose_heartbeats_end_is_killed_and_restarted(tmp_path: Path) -> None:
    events = Events()
    # Standard input is a socket: this is a heartbeat.
    spec = script("a", 'test "$WATCHDOG_USEC" = 3000000 && echo >&0; exec cat', tmp_path)
    supervisor = Supervisor([spec], on_event=events, hung_after_s=3)
    supervisor.start()

    def hung() -> bool:
        supervisor.check_heartbeats()
        return ("a", "hung") in events.kinds()

    await until(hung)
    (died,) = await events.until(lambda e: e.kind == "died")
    assert died.code == -signal.SIGKILL
    await events.until(lambda e: e.kind == "started", 2)
    await supervisor.stop(5)
    assert events.kinds()[:4] == [("a", "started"), ("a", "hung"), ("a", "died"), ("a", "started")]


async def test_child_that_sends_no_heartbeats_does_not_hang(tmp_path: Path) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (supervisor, events):
        await events.until(lambda e: e.kind == "started")
        for _ in range(100):
            supervisor.check_heartbeats()
    assert events.kinds() == [("a", "started"), ("a", "stopped")]


def _alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_exit_by_a_signal_is_reported_as_its_negative_number(tmp_path: Path, number: signal.Signals) -> None:
    async with supervised(script("a", IDLE, tmp_path)) as (_, events):
        (started,) = await events.until(lambda e: e.kind == "started")
        assert started.pid is not None
        os.kill(started.pid, number)
        (died, *_) = await events.until(lambda e: e.kind == "died")
        assert died.code == -number


async def test_children_become_those_that_are_wanted_and_those_that_stay_are_left_alone(tmp_path: Path) -> None:
    def specs(*names: str) -> list[Spec]:
        return [script(name, IDLE, tmp_path, stage=len(name)) for name in names]

    async with supervised(*specs("a", "bb")) as (supervisor, events):
        await events.until(lambda e: e.kind == "started", 2)
        before = {status.name: status.pid for status in supervisor.status()}
        await supervisor.become(specs("a", "c", "dd"), 5)
        await events.until(lambda e: e.kind == "started", 4)
        assert {status.name for status in supervisor.status()} == {"a", "c", "dd"}
        assert [name for name, kind in events.kinds() if kind == "stopped"] == ["bb"]
        await supervisor.become(specs("a"), 5)
        (left,) = supervisor.status()
        assert (left.name, left.pid) == ("a", before["a"])
        assert [name for name, kind in events.kinds() if kind == "stopped"] == ["bb", "dd", "c"]


async def test_child_without_a_log_may_write_where_its_supervisor_does() -> None:
    code = (
        "import asyncio, os; from diem.process.supervisor import Spec; from diem.process.supervisor import Supervisor\n"
        "async def main():\n"
        "    for inherit in (False, True):\n"
        "        argv = ('/bin/sh', '-c', f'echo {inherit}; exit 2')\n"
        "        one = Supervisor([Spec('a', argv, os.environ, inherit=inherit)])\n"
        "        one.start(); await one.wait()\n"
        "asyncio.run(main())"
    )
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[4]
    )
    out, _ = await done.communicate()
    assert (out, done.returncode) == (b"True\n", 0)


async def test_signal_reaches_a_running_child(tmp_path: Path) -> None:
    # A shell cannot trap what it was started to ignore, as by nohup.
    handler = "import signal; signal.signal(signal.SIGHUP, lambda *_: print('reloaded', flush=True))"
    waiting = f'{handler}; print("up", flush=True); signal.pause(); signal.pause()'
    async with supervised(script("a", f"exec {sys.executable} -c {shlex.quote(waiting)}", tmp_path)) as (supervisor, _):
        log = tmp_path / "a.log"
        await until(lambda: log.exists() and "up" in log.read_text())
        await until(lambda: supervisor.signal("a", signal.SIGHUP))
        await until(lambda: "reloaded" in log.read_text())
        assert not supervisor.signal("b", signal.SIGHUP)
