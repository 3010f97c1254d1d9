"""Classes of violations, each with its evidence, and the time bounds of the promises."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Bounds:
    """Time bounds in seconds. The defaults are those of docs/reliability.md section 4.1 without Kafka."""

    t_conv: float = 5.0
    t_heal: float = 15.0


@dataclass(frozen=True)
class Violation:
    """A broken invariant and its evidence: client, endpoint, versions, times."""

    invariant: ClassVar[str]
    meaning: ClassVar[str]

    client: str
    endpoint: str
    versions: tuple[int, ...] = ()
    times: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return the violation in one line."""
        versions = ", ".join(map(str, self.versions)) or "-"
        times = ", ".join(f"{time:.3f}" for time in self.times) or "-"
        return (
            f"{self.invariant} {type(self).__name__}: {self.meaning}: "
            f"client {self.client or '-'}, endpoint {self.endpoint or '-'}, versions {versions}, times {times}"
        )


class NotConverged(Violation):
    """I1. Versions: the final one of the subscriber, the expected one. Times: the end."""

    invariant = "I1"
    meaning = "a subscriber ended below the latest accepted version"


class AheadOfStore(Violation):
    """I1. Versions: the final one of the subscriber, REST's at the end. Times: the end."""

    invariant = "I1"
    meaning = "a subscriber ended above the version that the store has"


class StoreLost(Violation):
    """I1. Versions: REST's at the end, the latest accepted. Times: of the acceptance."""

    invariant = "I1"
    meaning = "an accepted change is not in the store"


class KeyTwice(Violation):
    """I1. Versions: the two of one Idempotency-Key. Times: of the two answers."""

    invariant = "I1"
    meaning = "one Idempotency-Key was accepted as two versions"


class WrongBase(Violation):
    """I1. Versions: the one in ``If-Match``, the one before, the accepted one. Times: of the answer."""

    invariant = "I1"
    meaning = "a write with If-Match was accepted after another version than the one that it names"


class Behind(Violation):
    """I2. Versions: the late one. Times: start of the promise, deadline, arrival."""

    invariant = "I2"
    meaning = "a subscriber was behind for longer than it may"


class Away(Violation):
    """I2. Times: start of the disconnection or live:false, deadline, return."""

    invariant = "I2"
    meaning = "a subscriber was not back in time"


class NotTold(Violation):
    """I3. Times: start of the fault, deadline of the notification."""

    invariant = "I3"
    meaning = "a connected subscriber was not told live:false in time"


class OutOfOrder(Violation):
    """I4. Versions: the previous one, and one that is not greater. Times: of the second."""

    invariant = "I4"
    meaning = "the application was told a version that is not greater"


class BarrierBroken(Violation):
    """I5. Versions: that of ``subscribed``, the due one. Times: of ``subscribed``, the deadline."""

    invariant = "I5"
    meaning = "an update from before or during the subscription never came"


class NotAccepted(Violation):
    """I6. Versions: the one that was never accepted. Times: of its arrival."""

    invariant = "I6"
    meaning = "a version was delivered that was never accepted"


class NotSubscribed(Violation):
    """I6. Versions and times: of the delivery."""

    invariant = "I6"
    meaning = "an update was delivered for an endpoint that was not subscribed"


class AfterUnsubscribed(Violation):
    """I6. Versions and times: of the delivery."""

    invariant = "I6"
    meaning = "an update was delivered after unsubscribed"


class WrongData(Violation):
    """I15. Versions: the one held, and the one whose data it is (0: of another endpoint, or of no accepted change)."""

    invariant = "I15"
    meaning = "a version is held with the data of another version or endpoint"


class WrongMembers(Violation):
    """I15. ``endpoint`` is the collection, with the wrong names after it. Versions: the one held."""

    invariant = "I15"
    meaning = "a collection is held without one of its members, or with another one"


class Forbidden(Violation):
    """I12. Versions and times: of the delivery."""

    invariant = "I12"
    meaning = "an endpoint was delivered to a client whose token does not cover it"


class Unaccounted(Violation):
    """I14. ``client`` is the process. Versions: the consumed updates, and the sum of the outcomes."""

    invariant = "I14"
    meaning = "consumed is not forwarded + not subscribed + stale + bad"
