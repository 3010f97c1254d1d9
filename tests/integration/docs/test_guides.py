"""Every command of README.md and the guides is run, in order, and prints what they show.

What needs another machine, root or a package registry is marked in the Markdown and listed here.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from deploy.cli.commands import command_line
from tests.support import guides
from tests.support.certificates import Authority
from tests.support.guides import ROOT, Block, Walk, blocks
from tests.support.nginx import needs_nginx
from tests.support.ports import free_port
from tests.support.required import in_cluster

GUIDES: Final = ROOT / "docs" / "guide"
FIRST_WALK: Final = [
    ROOT / "README.md",
    *(GUIDES / f"{name}.md" for name in ("get-started", "data", "files", "front-end")),
]
"""Guides about one system, each of which goes on where the one before ended."""
ALL: Final = [ROOT / "README.md", ROOT / "docs" / "going-public.md", *sorted(GUIDES.glob("*.md"))]
PORTS: Final = ("8080", "8101", "8123")
INSTEAD: Final = {
    # Installed before the tests run.
    "make run": "diem up --pages examples --origin http://localhost:5173",
    ". .venv/bin/activate": "true",
    "make spark": "true",
    # Of this system alone.
    "pkill -STOP -f '^diem websocket'": (
        "p=$(diem status --json | python3 -c 'import json, sys;"
        ' print(*(each["pid"] for each in json.load(sys.stdin)["processes"] if each["process"] == "websocket"))\');'
        # Wait, as a reader does, until the page is live again.
        " kill -STOP $p; while kill -0 $p 2>/dev/null; do sleep 0.5; done;"
        " until diem status | grep -q '^websocket-1  *ready'; do sleep 0.5; done"
    ),
    # What servers have recorded by then depends on the clock.
    "sleep 60": "python3 -m tests.support.recorded_visitors .diem/traffic/in",
    # They are those of the line above. It starts four programs, each of which imports everything.
    'for zone in GR BG RO TR; do diem load --endpoints "/*/$zone*" --clients 20 --seconds 5 --quiet & done; wait': (
        "diem load --endpoints /load/GR --clients 20 --seconds 1 --quiet"
    ),
}
ELSEWHERE: Final[Mapping[str, set[str]]] = {
    "get-started.md": {"pipx run"},
    "front-end.md": {"npm create", "cd my-page", "npm install", "npm run"},
    "write-a-client.md": {"diem up", "cd client/go", "go run"},
    "placement.md": {"diem pipeline"},
    "modes.md": {"diem up", "diem scale"},
    "several-machines.md": {
        *("apt install", "install -o", "nft add"),
        *("wg genkey", "wg pubkey", "systemctl enable"),
        *(
            "export",
            "diem topics",
            "diem check",
            "diem watch",
            "diem status",
            "diem top",
            "diem why",
            "diem canary",
            "scp -rp",
            "ssh root@10.0.0.1",
        ),
        *("diem plans", "diem apply", "ssh root@10.0.0.2"),
    },
    "going-public.md": {
        *("apt install", "git clone", "useradd --system", "install -d", "install -o", "systemd-analyze security"),
        *("install -D", "nft -f", "systemctl reload", "systemctl daemon-reload"),
        *("UP_OPTIONS=--mode x-broadcast", "UP_OPTIONS=... --front-proxy"),
        *("alias d='sudo", "curl https://NAME/v1/tokens"),
    },
}
"""The first words of the commands that are not run."""

Walking = Callable[..., AbstractAsyncContextManager[Walk]]


@pytest.fixture
def walking(tmp_path: Path) -> Walking:
    """Make walks with the programs of a checkout on the PATH."""

    def walking(ports: Mapping[str, str], *options: str, **more: Any) -> AbstractAsyncContextManager[Walk]:
        return guides.walking(tmp_path, ports, *options, **{"instead": INSTEAD, **more})

    return walking


@in_cluster("it takes 14 s of CPU time")
async def test_guides_about_one_system_go_as_they_say(walking: Walking) -> None:
    ports = {port: str(free_port()) for port in PORTS}
    async with walking(ports) as walk:
        for guide in FIRST_WALK:
            await walk.follow(guide)


async def test_choosing_a_mode_goes_as_it_says(walking: Walking) -> None:
    async with walking({port: str(free_port()) for port in PORTS}) as walk:
        await walk.follow(GUIDES / "modes.md")


@in_cluster("it takes 10 s of CPU time")
async def test_learning_a_placement_goes_as_it_says(walking: Walking, on_kafka: tuple[str, ...]) -> None:
    # `diem apply`, which asks twice a second, is to see the move although the machine may stand still for seconds.
    quick = ("--partitions", "12", "--set", "metadata:DIEM_METADATA_MOVE_SECONDS=5")
    async with walking({"8080": str(free_port())}, *on_kafka, *quick) as walk:
        await walk.follow(GUIDES / "placement.md")


@needs_nginx
async def test_going_public_starts_with_its_options_and_makes_keys_and_a_backup(
    walking: Walking, tmp_path: Path
) -> None:
    guide = ROOT / "docs" / "going-public.md"
    issued = Authority(tmp_path).issue()
    options = next(
        command.removeprefix("UP_OPTIONS=")
        for block in elsewhere(guide)
        for command in block.commands
        if command.startswith("UP_OPTIONS=--mode")
    )
    for written, here in {
        "[::]:443": "127.0.0.1",
        "/etc/diem/fullchain.pem": str(issued.certificate),
        "/etc/diem/privkey.pem": str(issued.key),
    }.items():
        assert written in options
        options = options.replace(written, here)
    instead = {
        "journalctl -u diem --follow": f"diem up {options}",
        "d backup /var/lib/diem/store.diem": "d backup store.diem",
    }
    async with walking({"8080": str(free_port())}, instead=instead, has_sources=False) as walk:
        await walk.follow(guide)


async def test_several_machines_goes_as_it_says(walking: Walking) -> None:
    async with walking({port: port for port in PORTS}) as walk:
        await walk.follow(GUIDES / "several-machines.md")


@pytest.mark.parametrize("guide", ALL, ids=lambda guide: guide.stem)
def test_commands_that_are_not_run_are_listed(guide: Path) -> None:
    found = {first_words(command) for block in elsewhere(guide) for command in block.commands}
    assert found == ELSEWHERE.get(guide.name, set())


@pytest.mark.parametrize("guide", ALL, ids=lambda guide: guide.stem)
def test_commands_that_are_not_run_have_options_that_exist(guide: Path) -> None:
    commands: Any = typer.main.get_command(command_line())
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for block in elsewhere(guide):
        for command in block.commands:
            program, *words = command.split()
            if program == "make":
                assert words[0] in targets
            elif program in {"diem", "d"}:
                known = commands
                while words and words[0] in getattr(known, "commands", {}):
                    known = known.commands[words.pop(0)]
                options = {option for parameter in known.params for option in parameter.opts}
                assert {word for word in words if word.startswith("--")} <= options, f"{block}: {command}"


def elsewhere(guide: Path) -> list[Block]:
    """Return the commands of a guide that are not run."""
    return [block for block in blocks(guide) if block.words[:2] == ("sh", "elsewhere")]


def first_words(command: str) -> str:
    """Return what a command is listed as."""
    words = command.split()
    return words[0] if words[0] == "export" else " ".join(words[:2])
