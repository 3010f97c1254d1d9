"""Settings of the documentation as a site, which ``make site`` builds with Sphinx from the Markdown files as they are.

The source directory is that of the repository, so that links between its files lead to pages. Nothing is loaded from
other hosts: Furo's fonts are those of the reader's machine, and the search is a script of the site.
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "client/README.md",
    "client/examples/README.md",
    "diem/client/README.md",
    "docs",
    "tests/cases/README.md",
)
"""What becomes pages; of a folder, the Markdown in it."""


def others() -> list[str]:
    """Return the files and folders beside the pages: Sphinx would search them, and some are large."""
    paths = {Path(page) for page in PAGES}
    folders = {parent for path in paths for parent in path.parents}
    beside = {entry.relative_to(ROOT) for folder in folders for entry in (ROOT / folder).iterdir()}
    return sorted(str(path) for path in beside - paths - folders)


project = "DIEM"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
html_title = f"{project} {release}"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [page if page.endswith(".md") else f"{page}/**.md" for page in PAGES]
exclude_patterns = [*others(), "docs/benchmarks", "docs/site"]
# Anchors as on GitHub.
myst_heading_anchors = 4
# Examples that leave parts out are no valid JSON: they have no colours.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
# The mark and the colours of the page (client/src/page/style.css).
html_logo = html_favicon = "../../client/public/icon.svg"
html_theme_options = {
    f"{scheme}_css_variables": {"color-brand-primary": colour, "color-brand-content": colour}
    for scheme, colour in (("light", "#0b6b5e"), ("dark", "#55d3b8"))
}
html_extra_path = ["extra"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
