import json
from pathlib import Path

import pytest

from deploy.childlog import LINES_BURST, ProcessLogs
from deploy.statedir import StateDir
from deploy.terminal import Terminal
from diem.process.clock import ManualClock


class World:
    def __init__(self, folder: Path) -> None:
        self.state, self.clock = StateDir(folder), ManualClock()
        self.clock.advance(1)
        self.log = self.state.log_of("data")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.voices = ProcessLogs(["data"], self.state, Terminal(), self.clock)

    def say(self, event: str, level: str = "warning") -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"event": event, "level": level}) + "\n")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_only_a_little_of_what_a_process_says_goes_to_the_terminal(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        world.say(f"trouble {number}")
    world.voices.follow(aloud=True)
    assert capsys.readouterr().err.count("data: ") == LINES_BURST
    assert "trouble 19" in world.voices.last("data")


def test_who_was_just_started_or_is_waited_for_is_read_in_silence(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.say("it waits")
    world.voices.follow(aloud=False)
    world.voices.hush(["data"], 5.0)
    world.say("it still waits")
    world.voices.follow(aloud=True)
    assert capsys.readouterr().err == ""
    world.clock.advance(6)
    world.say("it cannot")
    world.voices.follow(aloud=True)
    assert "data: it cannot" in capsys.readouterr().err


def test_the_last_word_of_a_life_is_no_word_of_the_next(world: World) -> None:
    world.say("the port is taken", "error")
    assert "the port is taken" in world.voices.last_word("data")
    world.voices.begin("data")
    assert world.voices.last_word("data") == ""
