"""axe in a page of a test, where ``npm ci`` has installed it: the rules of accessibility that a program can check."""

from typing import Any, Final, Literal

import pytest
from playwright.async_api import Page, ViewportSize

from tests.support.running import ROOT

SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
Rules = tuple[str, ...]
RULES: Final[dict[str, Rules]] = {"light": (), "dark": ("color-contrast", "link-in-text-block")}
"""Rules for a page that is looked at in the schemes in this order: by ``light-dark()`` in the styles, a scheme changes
colours alone, and these are the rules of colours."""
SIZES: Final[dict[str, ViewportSize]] = {
    "desktop": {"width": 1280, "height": 900},
    "phone": {"width": 360, "height": 740},
}
_AXE: Final = ROOT / "client/node_modules/axe-core/axe.min.js"


async def violations(page: Page, rules: Rules = ()) -> list[str]:
    """Return what axe finds, in one line each; ``rules`` are the rules to check, by default all.

    Its script is run as the developer's console would: past the page's policy.
    """
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci in client/")
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_AXE.read_text())
    chosen = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    found: dict[str, Any] = await page.evaluate(
        "(chosen) => axe.run(document, {resultTypes: ['violations'], ...chosen})", chosen
    )
    assert found["passes"], "axe looked at something"
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


async def nothing_is_found(page: Page, *sizes: str) -> None:
    """Check that axe finds nothing in any scheme, and that the page does not scroll sideways, in each size."""
    for size in sizes:
        await page.set_viewport_size(SIZES[size])
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            assert await violations(page, RULES[scheme]) == [], (size, scheme)
        assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth"), size
