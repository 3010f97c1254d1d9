"""What a service's internal listener answers when it does not do what was asked."""

import httpx

from diem.errors import DiemError


class Refused(DiemError):
    """The service called `who` does not do it; `status` is the HTTP status, `detail` what it says."""

    def __init__(self, who: str, status: int, detail: str) -> None:
        self.who = who
        self.status = status
        self.detail = detail
        super().__init__(who, status, detail)

    def __str__(self) -> str:
        return f"{self.who} refuses: {self.detail}"


def detail_of(reply: httpx.Response) -> str:
    """Return what an answer says, in one line (RFC 9457)."""
    try:
        problem = reply.json()
        text = str(problem.get("detail") or problem.get("title") or reply.reason_phrase)
    except (ValueError, AttributeError):
        text = reply.text[:200] or reply.reason_phrase
    return " ".join(text.split())
