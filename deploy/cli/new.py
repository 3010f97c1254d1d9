"""The command ``diem new page``: an example project as a front end of one's own, with the SDK beside it."""

import re
import shlex
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer

from deploy.cli.options import StateDirOption
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.errors import ConfigurationError
from services.data.settings import built_page

ROOT: Final = Path(__file__).parents[2]
PACKAGED: Final = ROOT / "deploy" / "projects"
"""The two directories of examples in an installed package, as they are in a checkout (``hatch_build.py``)."""
PLAIN_FILES: Final = ("scores.*", "playground.*")
"""Of ``examples``, those of a plain page."""
DOCUMENTED_PAGE: Final = "http://localhost:8080/"
"""The address in the projects, which is that of ``diem up`` without options."""
DEV_ORIGIN: Final = "http://localhost:5173"
"""Where ``npm run dev`` of each project serves it."""
TIMEOUT_S: Final = 3.0
SDK: Final = "diem-client-*.tgz"


class Framework(StrEnum):
    """What a page is made with: ``plain``, or the name of a project in ``client/examples``."""

    PLAIN = "plain"
    REACT = "react"
    VUE = "vue"
    SVELTE = "svelte"
    ANGULAR = "angular"
    SOLID = "solid"
    NEXT = "next"
    NUXT = "nuxt"
    SVELTEKIT = "sveltekit"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(no_args_is_help=True, help="Make a front end of your own from an example.")
    group.command("page")(page_command)
    cli.add_typer(group, name="new")


def page_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the page: a new or an empty one.")],
    *,
    framework: Annotated[
        Framework,
        typer.Option(
            "--with",
            help="plain: HTML and JavaScript, served by `diem up` itself. Others: a project in TypeScript, which needs "
            "Node.js; next, nuxt and sveltekit render on a server.",
        ),
    ] = Framework.PLAIN,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
) -> None:
    """Make a page from an example, for the running system or for `diem up` without options."""
    running = StateDir(state_dir).read_processes()
    url = str(running.get("urls", {}).get("page", DOCUMENTED_PAGE)).rstrip("/") + "/"
    make_page(directory, framework, url, built_page())
    typer.echo(f"made {directory} ({framework}); next:")
    start, *others = _next_steps(directory, framework, url)
    if not running:
        typer.echo(f"  {start}")
    elif framework is Framework.PLAIN or not _admits_dev_server(url):
        typer.echo(f"  {start}   # stop the running one first")
    for line in others:
        typer.echo(f"  {line}")


def _admits_dev_server(url: str) -> bool:
    """Return whether the system with this page says that pages of the dev server may connect."""
    try:
        answer = httpx.get(f"{url}config.json", headers={"Origin": DEV_ORIGIN}, timeout=TIMEOUT_S, trust_env=False)
        return answer.is_success and answer.json().get("allowed", True) is True
    except (httpx.HTTPError, ValueError, AttributeError):
        return False


def _next_steps(directory: Path, framework: Framework, url: str) -> tuple[str, ...]:
    path = shlex.quote(str(directory))
    if framework is Framework.PLAIN:
        return f"diem up --pages {path}", f"open {url}scores.html and {url}playground.html"
    return (
        f"diem up --origin {DEV_ORIGIN}",
        f"cd {path} && npm install && npm run dev",
        f"open {DEV_ORIGIN}",
    )


def make_page(directory: Path, framework: Framework, url: str, built: Path) -> None:
    """Copy an example to ``directory``.

    Args:
        directory: missing or empty; its name is the project's.
        framework: which example.
        url: the page of the system that the project connects to, with a slash at its end.
        built: where the packed SDK is.

    Raises:
        ConfigurationError: the directory has files or cannot be written; the SDK was not built.
    """
    examples = PACKAGED if PACKAGED.is_dir() else ROOT
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigurationError(f"{directory} exists: choose a new or an empty directory")
        if framework is Framework.PLAIN:
            directory.mkdir(parents=True, exist_ok=True)
            for pattern in PLAIN_FILES:
                for file in (examples / "examples").glob(pattern):
                    shutil.copy(file, directory)
        else:
            _copy_project(examples / "client" / "examples", directory, framework, url, built)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or directory}: {error.strerror}") from error


def _copy_project(examples: Path, directory: Path, framework: Framework, url: str, built: Path) -> None:
    sdk = next(built.glob(SDK), None)
    if sdk is None:
        raise ConfigurationError(f"{built} has no {SDK}: run `make page` first")
    gitignore = examples / ".gitignore"
    ignored = [pattern.rstrip("/") for pattern in gitignore.read_text().split()]
    shutil.copytree(examples / framework, directory, ignore=shutil.ignore_patterns(*ignored), dirs_exist_ok=True)
    replaced = {
        f"diem-example-{framework}": _package_name(directory),
        "file:../../diem-client-": "file:diem-client-",
        DOCUMENTED_PAGE: url,
    }
    for file in directory.rglob("*"):
        if file.is_file():
            text = file.read_text()
            for old, new in replaced.items():
                text = text.replace(old, new)
            file.write_text(text)
    shutil.copy(sdk, directory)
    shutil.copy(gitignore, directory)


def _package_name(directory: Path) -> str:
    """Return the directory's name as npm takes names."""
    return re.sub(r"[^a-z0-9-]+", "-", directory.resolve().name.lower()).strip("-") or "page"
