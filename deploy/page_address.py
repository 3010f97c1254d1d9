"""Links to the page's view "Data", as ``client/src/page/address.ts`` reads them; pure."""

from urllib.parse import quote


def data_view(page_url: str, endpoint: str = "") -> str:
    """Return an endpoint's address on the page, whose own ends in ``/``; without a name, of the list of endpoints."""
    return f"{page_url}?view=data" + (f"&endpoint={quote(endpoint, safe='/')}" if endpoint else "")
