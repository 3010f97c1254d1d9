"""Content that wants to run, and every way in which a page embeds an address."""

import base64
from collections.abc import Mapping
from typing import Final

from playwright.async_api import BrowserContext, Route

RAN: Final = (
    "self.ran = 1; self.top ? top.postMessage('ran ' + location, '*') : postMessage('ran ' + location); fetch('/ran')"
)
"""Notifies a page in whatever way is open to it."""
HTML: Final = f'<!doctype html><body onload="{RAN}"><script>{RAN}</script><img src="" onerror="{RAN}">'
_XHTML: Final = f'<html xmlns="http://www.w3.org/1999/xhtml"><script>{RAN}</script></html>'
_SVG: Final = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{RAN}"><script>{RAN}</script></svg>'
_PDF: Final = f"%PDF-1.4\n1 0 obj<</Type/Catalog/OpenAction<</S/JavaScript/JS({RAN})>>>>endobj trailer<</Root 1 0 R>>"
_CSS: Final = "@import '/ran'; html { color: rgb(1, 2, 3) !important; background: url(/ran) }"
_MIXED: Final = f"--b\r\nContent-Type: text/html\r\n\r\n{HTML}\r\n--b--"

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAEElEQVR42mP8z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="
)

CONTENT: Final[Mapping[str, tuple[str, str | bytes]]] = {
    "png": ("image/png", PNG),
    "html": ("text/html", HTML),
    "html-odd": ('Text/HTML; charset="UTF-8"; x=1', HTML),
    "html-utf7": ("text/html;charset=utf-7", f"+ADw-script+AD4-{RAN}+ADw-/script+AD4-"),
    "html-text": ("text/plain", HTML),
    "html-text-odd": ("text/plain;charset=x-user-defined;format=flowed", HTML),
    "html-octets": ("application/octet-stream", HTML),
    "html-png": ("image/png", HTML),
    "html-video": ("video/mp4", HTML),
    "html-other": ("application/x-unknown-content-type", HTML),
    "xhtml": ("application/xhtml+xml;charset=utf-8", _XHTML),
    "xml": ("text/xml", f'<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="svg"?>{_XHTML}'),
    "svg": ("image/svg+xml", _SVG),
    "svg-text": ("text/plain;charset=utf-8", _SVG),
    "mixed": ("multipart/x-mixed-replace;boundary=b", _MIXED),
    "pdf": ("application/pdf", _PDF),
    "script-text": ("text/plain", RAN),
    "script-octets": ("application/octet-stream;type=javascript", RAN),
    "script-other": ("text/x-script", RAN),
    "script-png": ("image/png", RAN),
    "style-text": ("text/plain", _CSS),
}
"""Media type and content by name; all of it is stored."""

CARELESS: Final = {
    "html": "text/html",
    "xhtml": "application/xhtml+xml",
    "svg": "image/svg+xml",
    "script": "text/javascript",
}
"""What a careless server would send, and a browser runs."""

EMBED: Final = """(urls) => {
  window.events = {};
  window.messages = [];
  window.pending = 0;
  const settle = (way, outcome) => { events[way] = outcome; pending -= 1; };
  const take = ({ data }) => { if (String(data).startsWith("ran")) messages.push(data); };
  addEventListener("message", take);
  const add = (tag, attributes, url) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (["img", "script", "link"].includes(tag)) {
      pending += 1;
      element.onload = element.onerror = ({ type }) => settle(`${tag} ${url}`, type);
    }
    document.body.append(element);
  };
  for (const url of urls) {
    add("iframe", { src: url });
    add("embed", { src: url });
    add("embed", { src: url, type: "image/svg+xml" });
    add("object", { data: url, type: "text/html" });
    add("img", { src: url }, url);
    for (const type of ["text/javascript", "module"]) add("script", { src: url, type }, url);
    add("link", { rel: "stylesheet", href: url }, url);
    for (const type of ["classic", "module"]) {
      pending += 1;
      try {
        const worker = new Worker(url, { type });
        worker.onmessage = (event) => { take(event); settle(`worker ${url}`, "load"); };
        worker.onerror = () => settle(`worker ${url}`, "error");
      } catch { settle(`worker ${url}`, "error"); }
    }
    if (navigator.serviceWorker) {
      pending += 1;
      const settled = (outcome) => () => settle(`service ${url}`, outcome);
      navigator.serviceWorker.register(url).then(settled("load"), settled("error"));
    }
  }
}"""
"""Embeds addresses in a page, and notes what becomes of elements and workers, and what scripts send."""

EMBED_WITH_BLOBS: Final = f"""async (urls) => {{
  const blobs = await Promise.all(urls.map(async (url) => URL.createObjectURL(await (await fetch(url)).blob())));
  ({EMBED})([...urls, ...blobs]);
}}"""
"""The same, and once more as URLs of what the page has fetched."""


async def add_pages(context: BrowserContext, *addresses: str) -> None:
    """Serve a page without a policy at some addresses, and careless answers below ``/careless/``."""

    async def careless(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        await route.fulfill(body=CONTENT[name][1] if name in CONTENT else RAN, content_type=CARELESS[name])

    async def page(route: Route) -> None:
        await route.fulfill(body="<!doctype html><title>page</title><body>", content_type="text/html")

    for url in addresses:
        await context.route(url, page)
    await context.route("**/careless/*", careless)
