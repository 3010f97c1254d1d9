"""Two releases of the program, one of which is installed: the last one from the history, and that of this checkout."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = (
    "bridge",
    "deploy",
    "diem",
    "examples",
    "learning",
    "metadata",
    "packs",
    "proxy",
    "services",
    "tools",
)
"""Those that a release does not have are left out."""
PAGE: Final = Path("client", "dist")


def why_not_extracted(commit: str) -> str:
    """Return why the history does not have the release; empty if it does."""
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    return f"the history of this checkout does not have {commit}" if found.returncode else ""


class Trees:
    """The folder in which a release is installed: at first that of ``commit``; :meth:`exchange` puts the other there.

    Processes that run keep the modules that they have imported; those that are started later are of the other release.
    """

    def __init__(self, folder: Path, commit: str) -> None:
        self.installed = folder / "installed"
        self._other = folder / "other"
        listed = _git("ls-tree", "--name-only", commit, *PACKAGES).decode().split()
        packed = _git("archive", commit, *listed, "pyproject.toml")
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(self.installed, filter="data")
        for package in (each for each in PACKAGES if (ROOT / each).is_dir()):
            # With what is compiled, which counts for files with the same times, but not what is being written.
            shutil.copytree(ROOT / package, self._other / package, ignore=shutil.ignore_patterns("*.pyc.*"))
        shutil.copy(ROOT / "pyproject.toml", self._other)
        if (ROOT / PAGE).is_dir():
            for tree in (self.installed, self._other):
                shutil.copytree(ROOT / PAGE, tree / PAGE)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of what is run from here."""
        return {"PYTHONPATH": str(self.installed)}

    def exchange(self) -> None:
        """Install the other release in place of the one that is installed."""
        aside = self.installed.with_name("aside")
        self.installed.rename(aside)
        self._other.rename(self.installed)
        aside.rename(self._other)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
