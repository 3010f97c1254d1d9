"""Build hook of the wheel: it contains the page, which must have been built before.

Hatchling runs it (``[tool.hatch.build.targets.wheel.hooks.custom]`` of ``pyproject.toml``).
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE_OF_PACKAGE = "services/data/page"
"""Where the Data Service looks for it (``services/data/settings.py``)."""


class PageHook(BuildHookInterface):  # type: ignore[type-arg]  # only hatchling loads it
    """Adds ``client/dist`` to wheels. Editable installations read it where it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files to add. Raises ``FileNotFoundError`` without a built page."""
        if version != "standard":
            return
        built = Path(self.root, "client", "dist")
        if not (built / "index.html").is_file():
            raise FileNotFoundError(f"{built} has no page: run `make page` first, or `make packages` for all of it")
        for entry in sorted(built.iterdir()):
            # What `npm pack` compiles for other pages is in the same folder.
            if entry.name != "sdk":
                build_data["force_include"][str(entry)] = f"{PAGE_OF_PACKAGE}/{entry.name}"
