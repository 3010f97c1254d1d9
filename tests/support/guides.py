"""Guides as tests: the commands of a Markdown file, run in order, and the output that it shows.

The words after the backticks of a fenced block say what it is:

- ``sh``: commands, run one after the other; all must succeed. A ``text`` block right below is their output.
- ``sh terminal``: a command in a terminal of its own, such as ``diem up``; it goes on until the end. The same command
  in a later block is the one that runs. A ``text`` block right below is what it prints first.
- ``sh terminal again``: the running ``diem up`` is interrupted first, as with Ctrl-C, whatever its options are.
- ``sh elsewhere``: not run, because it needs another machine, root, or a package registry.
- ``LANGUAGE FILE``, such as ``toml diem.toml``: the content of a file.

Output is a real sample. What differs from run to run is compared by its form alone (:data:`_VARYING`), and columns may
have other widths; in a block ``text figures`` all numbers may be others. A line ``...`` stands for any number of lines,
and ``...`` within a line for any text.
"""

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from tests.support.patience import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^( *)```+(.*)$")
_ASSIGNED: Final = re.compile(r"^(\w+=\S+ )+")
"""Variables before a command."""
_SHELL: Final = frozenset("|&;<>()$`*?[]{}~!\"'=")
"""Characters for which a line is run by a shell; a line without them is a plain command."""

_VARYING: Final = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?",  # a time
    r"\d\d:\d\d:\d\d(?:\.\d+)?",  # a time of day
    r"\b\d{13}\b",  # a version
    r"\b[0-9a-f]{16}\b",  # an id
    r"\bp-\d{8}-\d{6}-[0-9a-f]{8}\b",  # the id of a plan
    r"(?:(?<=\bkey )[0-9a-z]{8}\b|(?<=\bdiem_)[0-9a-z]{8}(?=_))",  # the id of a key, alone and in the key
    r"\b(?:\d+h)?(?:\d+m)?\d+s\b",  # a duration
    r"\b\d+\.\d+(?= (?:s|ms|MB|MiB|GB|GiB)\b)",  # a measurement
    r"  +",  # the gap between columns
)
"""Forms of what differs from run to run; one in a sample stands for any of the same form."""
_FIGURE: Final = r"\d[\d,]*(?:\.\d+)?"
_VARIES: Final = re.compile("|".join(f"({form})" for form in _VARYING))
_VARIES_WITH_FIGURES: Final = re.compile("|".join(f"({form})" for form in (*_VARYING, _FIGURE)))


class Output(NamedTuple):
    """What a guide shows of a command's output."""

    text: str
    figures_vary: bool = False
    """Whether each number stands for any other."""


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    file: Path
    line: int
    """Number of its first line of text, from 1."""
    words: tuple[str, ...]
    """What is after the backticks."""
    text: str
    is_adjacent: bool
    """Whether only blank lines are between the block before and this one."""

    @property
    def is_run(self) -> bool:
        """Whether these are commands that a test runs."""
        return self.words[:1] == ("sh",) and "elsewhere" not in self.words

    @property
    def names_file(self) -> bool:
        """Whether it is the content of a file."""
        return len(self.words) > 1 and self.words[0] != "sh"

    @property
    def commands(self) -> list[str]:
        """The commands, one a line; lines that end with a backslash are joined, comments and blank lines left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        stripped = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in lines)
        return [re.sub(r"\s+", " ", line) for line in stripped if line]

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.file.name}:{self.line}"


def blocks(file: Path) -> list[Block]:
    """Return the fenced blocks of a Markdown file. Raises ``ValueError`` for one that does not end."""
    found: list[Block] = []
    opened: tuple[int, int, tuple[str, ...], bool] | None = None
    text: list[str] = []
    adjacent = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, text = (number + 1, len(fence[1]), tuple(fence[2].split()), adjacent), []
        elif opened is None:
            adjacent = adjacent and not line.strip()
        elif fence and not fence[2].strip():
            first, _, words, is_adjacent = opened
            found.append(Block(file, first, words, "\n".join(text), is_adjacent))
            opened, adjacent = None, True
        else:
            text.append(line[opened[1] :] if not line[: opened[1]].strip() else line)
    if opened is not None:
        raise ValueError(f"{file.name}:{opened[0] - 1}: this block does not end")
    return found


def steps(file: Path) -> Iterator[tuple[Block, Output | None]]:
    """Yield the commands and files of a guide in order, commands with the output that is shown for them."""
    found = blocks(file)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.names_file:
            yield block, None
        elif block.words[:1] == ("sh",):
            shown = after is not None and after.is_adjacent and after.words in (("text",), ("text", "figures"))
            yield block, Output(after.text, "figures" in after.words) if after is not None and shown else None


def pattern_of(shown: Output) -> re.Pattern[str]:
    """Return what output must begin with to be the one that is shown."""
    varies = _VARIES_WITH_FIGURES if shown.figures_vary else _VARIES
    parts = []
    for line in shown.text.strip("\n").splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append("".join(_patterns(line.rstrip(), varies)) + r"[ \t]*\n")
    return re.compile(r"\n*" + "".join(parts))


def _patterns(line: str, varies: re.Pattern[str]) -> Iterator[str]:
    """Yield the patterns of a line's parts."""
    end = 0
    for found in varies.finditer(line):
        yield _fixed(line[end : found.start()])
        yield (*_VARYING, _FIGURE)[(found.lastindex or 1) - 1]
        end = found.end()
    yield _fixed(line[end:])


def _fixed(text: str) -> str:
    return re.escape(text).replace(r"\.\.\.", ".*?")


def is_shown(shown: Output, printed: str) -> bool:
    """Return whether the whole of an output is the one that is shown."""
    if shown.text.rstrip().endswith("\n..."):
        return begins_with(shown, printed)
    return re.fullmatch(pattern_of(shown).pattern + r"\s*", printed + "\n") is not None


def begins_with(shown: Output, printed: str) -> bool:
    """Return whether an output begins with what is shown."""
    return pattern_of(shown).match(printed + "\n") is not None


@dataclass
class _Terminal:
    """A command that goes on."""

    command: str
    program: list[str]
    """Its first two words."""
    process: Process
    printed: bytearray = field(default_factory=bytearray)
    reading: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        return _plain(bytes(self.printed))

    async def read(self) -> None:
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(4096):
            self.printed += data

    async def close(self) -> None:
        """Interrupt it, as with Ctrl-C, and wait for its end."""
        if self.process.returncode is None:
            # It leads a session: of a shell, what that has started is interrupted, too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGINT)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.process.wait()
                if self.reading is not None:
                    await self.reading
        except TimeoutError:
            await _kill(self.process)
            raise
        finally:
            if self.reading is not None:
                self.reading.cancel()


class Walk:
    """Guides that are followed one after the other, in one directory, with the terminals that they open."""

    def __init__(
        self,
        directory: Path,
        *,
        ports: Mapping[str, str],
        instead: Mapping[str, str],
        environment: Mapping[str, str],
        up_options: Sequence[str] = (),
        is_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Begin a walk.

        Args:
            directory: where the commands are run.
            ports: documented ports, and those that are used in their place.
            instead: commands that the tests do not run as they are, and what is run in their place.
            environment: variables of all commands.
            up_options: options that ``diem up`` is given as well.
            is_up: called when ``diem up`` is ready; returns when a reader, who is slower than a test, would go on.
        """
        self._directory = directory
        self._ports = ports
        self._instead = instead
        self._environment = dict(environment)
        self._up_options = tuple(up_options)
        self._is_up = is_up
        self._terminals: list[_Terminal] = []

    async def follow(self, guide: Path) -> None:
        """Follow a guide to its end. Raises ``AssertionError`` at the first step that goes another way."""
        for block, shown in steps(guide):
            if block.names_file:
                file = self._directory / block.words[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._translated(block.text) + "\n")
            elif "terminal" in block.words and block.is_run:
                await self._open(block, shown)
            elif block.is_run:
                await self._run(block, shown)

    async def close(self) -> None:
        """Interrupt what runs, the last first. Raises ``TimeoutError``, after all, if one did not end by itself."""
        async with contextlib.AsyncExitStack() as closing:
            while self._terminals:
                closing.push_async_callback(self._terminals.pop(0).close)

    async def _run(self, block: Block, shown: Output | None) -> None:
        printed = ""
        for command in block.commands:
            process = await self._start(self._instead.get(command, command))
            try:
                async with asyncio.timeout(4 * PATIENCE_S):
                    output, _ = await process.communicate()
            except TimeoutError:
                await _kill(process)
                raise AssertionError(f"{block}: {command} does not end") from None
            printed += _plain(output)
            assert process.returncode == 0, f"{block}: {command} ended with {process.returncode}:\n{printed}"
        if shown is not None:
            expected = shown._replace(text=self._translated(shown.text))
            assert is_shown(expected, printed), f"{block}: expected\n{expected.text}\nbut it printed\n{printed}"

    async def _open(self, block: Block, shown: Output | None) -> None:
        (written,) = block.commands
        command = self._instead.get(written, written)
        program = _ASSIGNED.sub("", command).split()[:2]
        if "again" in block.words:
            (before,) = (each for each in self._terminals if each.program == program)
            self._terminals.remove(before)
            await before.close()
        terminal = next((each for each in self._terminals if each.command == command), None)
        if terminal is None:
            terminal = _Terminal(command, program, await self._start(command))
            terminal.reading = asyncio.create_task(terminal.read())
            self._terminals.append(terminal)
        if shown is None:
            return
        expected = shown._replace(text=self._translated(shown.text))
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                while not begins_with(expected, terminal.text) and terminal.process.returncode is None:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass
        assert begins_with(expected, terminal.text), (
            f"{block}: expected\n{expected.text}\nbut it printed\n{terminal.text}"
        )
        if program == ["diem", "up"]:
            await self._is_up()

    async def _start(self, command: str) -> Process:
        command = self._translated(command)
        more = self._up_options if _ASSIGNED.sub("", command).startswith("diem up") else ()
        plain = not set(command) & _SHELL
        words = [*shlex.split(command), *more] if plain else ["bash", "-c", f"{command} {shlex.join(more)}"]
        if words[0] in {"diem", "d"}:
            # Tests start processes of DIEM by a fork. "d" is what going-public.md calls it as another user.
            words = [sys.executable, "-m", "deploy", *words[1:]]
        return await asyncio.create_subprocess_exec(
            *words,
            cwd=self._directory,
            env=self._environment,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )

    def _translated(self, text: str) -> str:
        return re.sub(r"\b(\d{4})\b", lambda found: self._ports.get(found[1], found[1]), text)


async def _kill(process: Process) -> None:
    """Kill a process and its children, and wait for its end; a pipe that others keep open delays that."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()


def _plain(output: bytes) -> str:
    """Return output without the colours and the line movements of a terminal, with ``diem`` as if on the PATH."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode(errors="replace"))
    text = re.sub(r"[^\n]*\r(?!\n)", "", text).replace("\r\n", "\n")
    return text.replace(f"{Path(sys.executable).parent / 'diem'} ", "diem ")


@contextlib.asynccontextmanager
async def walking(
    place: Path, ports: Mapping[str, str], *options: str, instead: Mapping[str, str], has_sources: bool = True
) -> AsyncIterator[Walk]:
    """Begin a walk below a directory, with the programs of a checkout on the PATH; at its end, interrupt what runs.

    ``has_sources``: ``diem up`` is ready once its sources are, unless readers need a key.
    """
    programs, directory = place / "bin", place / "walk"
    programs.mkdir()
    for name, command in {
        "diem": f'"{sys.executable}" -m deploy',
        "d": f'"{sys.executable}" -m deploy',
        "python3": f'"{sys.executable}"',
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("DIEM_") or "FACTOR" in name
    }
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    websocket = ("--websocket-port", ports["8101"]) if "8101" in ports else ()
    up = ("--free-ports", "--port", ports["8080"], *websocket, *options)
    shutil.copytree(ROOT / "examples", directory / "examples")

    async def is_up() -> None:
        if not has_sources:
            return
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http, asyncio.timeout(PATIENCE_S):
            url = f"http://127.0.0.1:{ports['8080']}/v1/sources"
            # Where readers need a key, nothing in the guide reads without one.
            while (answer := await http.get(url)).status_code != 401:
                if all(source["ok"] for source in answer.json()["sources"]):
                    break
                await asyncio.sleep(0.1)

    walk = Walk(directory, ports=ports, instead=instead, environment=environment, up_options=up, is_up=is_up)
    try:
        yield walk
    finally:
        await walk.close()
