"""`diem plan` in its parts: what was found, what is made of it, and what is said of that."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from deploy.plans import shown
from deploy.plans.asked import PlanRequest
from deploy.plans.learnt import PlanningInput, learn, need_planner
from deploy.plans.system import System
from deploy.terminal import Terminal
from diem.process.faults import ConfigurationError
from diem.protocol.assignment import Snapshot
from metadata.plans.plan import encode
from metadata.statistics.figures import warning_of_twins

if TYPE_CHECKING:
    from deploy.plans.made import MadePlan


@dataclass(eq=False)
class PlanFileUnwritable(ConfigurationError):
    """The file of a plan cannot be written."""

    template = "{file} cannot be written: {reason}"

    file: Path
    reason: str


class Planning:
    """One `diem plan`, in this order: `learn`, `make`, `write`, `say` or `as_json`."""

    def __init__(self, asked: PlanRequest, terminal: Terminal, console: Console) -> None:
        need_planner()
        self._asked = asked
        self._terminal = terminal
        self._console = console
        self._learnt: PlanningInput | None = None
        self._made: MadePlan | None = None

    def learn(self) -> None:
        """Read the traffic. Raises what `deploy.plans.learnt.learn` does."""
        learnt = self._learnt = learn(self._asked, self._terminal)
        said = f"{learnt.events:,} events of {shown.amount(learnt.clients, 'client')}, {learnt.start} to {learnt.end}"
        self._terminal.say(f"{said} ({learnt.source})")
        if learnt.twins:
            self._terminal.warn(warning_of_twins(learnt.twins))

    def make(self, system: System, now: Snapshot) -> "MadePlan":
        """Make the plan. Raises what `deploy.plans.made.make` does."""
        from deploy.plans.made import make  # noqa: PLC0415  # it needs numpy

        learnt = self._known()
        with self._console.status("planning") if self._terminal.is_shown else nullcontext():
            made = self._made = make(learnt, self._asked, system, now)
        amounts = (
            shown.amount(len(learnt.instance.endpoints), "endpoint"),
            shown.amount(learnt.sets, "subscription set"),
            shown.amount(made.plan.report["there"], "server"),
        )
        planned = ", ".join(map(str, made.plan.servers))
        self._terminal.say("{}, {}; {} now, planned for {}\n".format(*amounts, planned))
        return made

    @property
    def encoded(self) -> bytes:
        """The plan as a file and as the metadata service has it."""
        return encode(self._result().plan)

    def write(self, file: Path) -> None:
        """Write the plan to a file. Raises `PlanFileUnwritable`."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_bytes(self.encoded + b"\n")
        except OSError as error:
            raise PlanFileUnwritable(file, error.strerror or str(error)) from error

    def say(self, file: Path | None, *, submitted: bool) -> None:
        """Say what would move and what that gains, and what can be done next."""
        made = self._result()
        for each in shown.gains(made.plan.report):
            self._console.print(each)
        said = "It pays" if made.pays else "It does not pay"
        self._terminal.say(f"{said}: {made.why}\n")
        if file is None:
            self._terminal.say(
                "no plan was submitted: everything may stay where it is (--anyway submits it all the same)"
            )
        elif submitted:
            self._terminal.say(f"{made.plan.id} is submitted, and in {file}\nnext: diem apply {made.plan.id}")
        else:
            self._terminal.say(f"{made.plan.id} is in {file}\nnext: diem apply {file}")

    def as_json(self, file: Path | None, *, submitted: bool) -> dict[str, Any]:
        """Return the same for programs."""
        made, learnt = self._result(), self._known()
        return {
            "plan": None if file is None else made.plan.id,
            "pays": made.pays,
            "why": made.why,
            "submitted": submitted,
            "file": None if file is None else str(file),
            "window": made.plan.window,
            "events": learnt.events,
            "clients": learnt.clients,
            "twins": learnt.twins,
            "servers": list(made.plan.servers),
            "partitions": made.plan.partitions,
            "report": made.plan.report,
        }

    def _known(self) -> PlanningInput:
        if self._learnt is None:
            raise AssertionError("first it learns")
        return self._learnt

    def _result(self) -> "MadePlan":
        if self._made is None:
            raise AssertionError("first it is made")
        return self._made
