"""Refused peers: one line a minute, and the status while they last."""

from structlog.testing import capture_logs

from diem.process import peer_versions
from diem.process.peer_versions import MAX_PEERS, RefusedPeers
from diem.protocol.compatibility import OURS, Versions

LATER = Versions(OURS.newest + 1, OURS.newest + 1)


class Refused:
    def __init__(self) -> None:
        self.now = 0.0
        self.peers = RefusedPeers(lambda: self.now)

    def lines(self, peer: str, *times: float) -> int:
        with capture_logs() as logs:
            for self.now in times:
                self.peers.refuse(peer, LATER)
        return len(logs)


def test_a_peer_has_one_line_a_minute() -> None:
    refused = Refused()
    assert refused.lines("a", 0, 5, 30, 59) == 1
    assert refused.lines("a", 60, 65, 119) == 1
    assert refused.lines("b", 119, 119) == 1


def test_the_status_has_refused_peers_until_a_minute_after_the_last_refusal() -> None:
    refused = Refused()
    assert refused.peers.status() == {"oldest": OURS.oldest, "newest": OURS.newest}
    refused.lines("a", 0, 10)
    refused.now = 70
    assert refused.peers.status()["refused"] == {"a": LATER.announcement}
    refused.now = 71
    assert "refused" not in refused.peers.status()


def test_the_number_of_peers_that_are_told_apart_is_bounded() -> None:
    refused = Refused()
    assert sum(refused.lines(f"peer-{number}", 0) for number in range(2 * MAX_PEERS)) == MAX_PEERS
    assert len(refused.peers.status()["refused"]) == MAX_PEERS


def test_a_process_that_refused_nobody_shows_its_versions_alone() -> None:
    assert {"oldest", "newest"} <= peer_versions.status().keys()
