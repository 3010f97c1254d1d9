"""Build hook of the wheel: it contains the page, which must have been built before, and the examples.

Hatchling runs it (``[tool.hatch.build.targets.wheel.hooks.custom]`` of ``pyproject.toml``).
"""

import os
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE_OF_PACKAGE = "services/data/page"
"""Where the Data Service looks for it (``services/data/settings.py``)."""
PROJECTS_OF_PACKAGE = "deploy/projects"
"""Where ``diem new page`` looks for the examples (``deploy/cli/new.py``)."""


class PageHook(BuildHookInterface):  # type: ignore[type-arg]  # only hatchling loads it
    """Adds ``client/dist`` and the examples to wheels. Editable installations read them where they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files to add. Raises ``FileNotFoundError`` without a built page."""
        if version != "standard":
            return
        included = build_data["force_include"]
        built = Path(self.root, "client", "dist")
        if not (built / "index.html").is_file():
            raise FileNotFoundError(f"{built} has no page: run `make page` first, or `make packages` for all of it")
        for entry in sorted(built.iterdir()):
            # What `npm pack` compiles is in the same folder, and in its archive.
            if entry.name != "sdk":
                included[str(entry)] = f"{PAGE_OF_PACKAGE}/{entry.name}"
        ignored = shutil.ignore_patterns(*(line.rstrip("/") for line in self._gitignore().split()))
        for examples in ("client/examples", "examples"):
            for folder, folders, files in os.walk(Path(self.root, examples)):
                left_out = ignored(folder, [*folders, *files])
                folders[:] = sorted(set(folders) - left_out)
                for name in sorted(set(files) - left_out):
                    path = Path(folder, name)
                    included[str(path)] = f"{PROJECTS_OF_PACKAGE}/{path.relative_to(self.root)}"

    def _gitignore(self) -> str:
        """Return what builds of examples write, one pattern a line."""
        return Path(self.root, "client", "examples", ".gitignore").read_text()
