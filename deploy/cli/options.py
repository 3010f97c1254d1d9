"""Options that several commands of `diem` share."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.statedir import StateDir
from diem.process import lifecycle
from diem.process.lifecycle import Lifecycle

EXIT_NOTHING: Final = 3
"""There is no traffic to learn from: nothing has failed, and nothing could be done."""
EXIT_INTERRUPTED: Final = 130


def _checked(path: Path) -> Path:
    StateDir(path).check()
    return path


StateDirOption = Annotated[
    Path,
    typer.Option("--state-dir", envvar="DIEM_STATE_DIR", help="Directory of keys, store and logs.", callback=_checked),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Base URL of a Data Service elsewhere; default: the one up here.")
]


def completed(work: Callable[[], Awaitable[None]]) -> int:
    """Run a command that changes something: who was interrupted is not to believe that it was done."""
    done = False

    async def all_of_it() -> None:
        nonlocal done
        await work()
        done = True

    code = attended(all_of_it)
    return code if done or code else EXIT_INTERRUPTED


def attended(work: Callable[[], Awaitable[None]]) -> int:
    """Run a command that a person waits for: Ctrl-C ends it at once and is no fault."""
    life = Lifecycle(drain_seconds=0)
    return lifecycle.serve(life, work)
