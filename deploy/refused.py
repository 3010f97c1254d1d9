"""What a service's internal listener answers when it does not do what was asked."""

from dataclasses import dataclass

import httpx

from diem.errors import DiemError


@dataclass(eq=False)
class ServiceRefused(DiemError):
    """The service called `who` does not do it; `status` is the HTTP status, `detail` what it says."""

    template = "{who} refuses: {detail}"

    who: str
    status: int
    detail: str


def detail_of(reply: httpx.Response) -> str:
    """Return what an answer says, in one line (RFC 9457)."""
    try:
        problem = reply.json()
        text = str(problem.get("detail") or problem.get("title") or reply.reason_phrase)
    except (ValueError, AttributeError):
        text = reply.text[:200] or reply.reason_phrase
    return " ".join(text.split())
