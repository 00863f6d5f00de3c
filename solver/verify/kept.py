"""Which nodes are reserved for whom, and whom that keeps away (problem.md, 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import Job, Missing
from trencadis.models.base import seconds
from trencadis.solver.verify import nearness
from trencadis.solver.verify.admission import refusal
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.fits import Shape, Shapes, capacity
from trencadis.solver.verify.forecast import Forecast
from trencadis.solver.verify.situation import Situation, place
from trencadis.solver.verify.units import has_mig


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan's reservations, and those of the snapshot that are due."""

    forecast: Forecast
    reserved: tuple[tuple[str, int, frozenset[str]], ...]
    """For which job, from when on, which nodes."""

    @property
    def nodes(self) -> Mapping[str, frozenset[str]]:
        """All nodes that are reserved for a job."""
        found: dict[str, frozenset[str]] = {}
        for owner, _, nodes in self.reserved:
            found[owner] = found.get(owner, frozenset()) | nodes
        return found

    def bars(self, job: Job, *, further: bool = False) -> tuple[str, ...]:
        """Jobs on whose reserved nodes the job may not start, nor have `further` tasks: it would
        still be there then, and goes after them (further tasks go before no one)."""
        if not self.reserved:
            return ()
        forecast = self.forecast
        begin = forecast.situation.now
        if job.on_nodes and job.start is not None:
            begin = seconds(job.start)
        end = begin + forecast.runtime[job.name]
        overdue = end <= forecast.situation.now
        rank = forecast.rank
        return tuple(
            owner
            for owner, at, _ in self.reserved
            if owner != job.name
            and (end > at or overdue)
            and (further or (job.name in rank and rank[job.name] > rank[owner]))
        )

    def barred_from(self, job: Job, node: str, *, further: bool = False) -> tuple[str, ...]:
        """Those of them that have the node."""
        owners = self.bars(job, further=further)
        return tuple(owner for owner in owners if node in self.nodes[owner])


def kept_of(forecast: Forecast) -> Kept:
    """The reservations of the forecast's plan, after those of its snapshot that are due."""
    situation = forecast.situation
    found = [
        (job, situation.now, frozenset(nodes))
        for job, nodes in due(situation)
    ]
    for entry in forecast.plan.reserves:
        nodes = frozenset(task.node for task in entry.allocation)
        found.append((entry.job, seconds(entry.at), nodes))
    return Kept(forecast, tuple(found))


def due(situation: Situation) -> list[tuple[str, Counter[str]]]:
    """Reservations whose time has come, and whose nodes are free and right for their jobs: tasks
    by node."""
    found = []
    for hold in situation.snapshot.holds:
        job = situation.eligible.get(hold.job)
        if hold.kind != "reservation" or seconds(hold.at) > situation.now or job is None:
            continue
        if isinstance(job, Missing):
            continue
        if job.group is not None or has_mig(job.request) or job.request.share is not None:
            continue
        wanted = Counter(task.node for task in hold.allocation)
        shape, policy = Shapes(situation).of_job(job), situation.snapshot.policy
        if not all(name in situation.states for name in wanted):
            continue
        if wanted.total() != job.minimum or any(
            refusal(shape.wish, situation.states[name].node, policy, situation.now)
            for name in wanted
        ):
            continue
        nodes = {name: situation.states[name].node for name in wanted}
        placed = place(job, situation.asks[job.name], hold.allocation, nodes, situation.levels)
        near = not any(broken for rule in nearness.RULES for broken in rule(situation, placed))
        if near and holds(situation, shape, wanted):
            found.append((job.name, wanted))
    return found


def holds(situation: Situation, shape: Shape, wanted: Counter[str]) -> bool:
    """Whether so many tasks of the shape fit each of these nodes, on one GPU model."""
    board = Board(situation, {name: situation.states[name] for name in wanted})
    models = [m for m in board.gpus if not shape.models or m in shape.models]
    for model in models if shape.ask.on_gpus else [None]:
        rows, tasks = capacity(board, shape, model, situation.knife)
        room = {int(row): int(number) for row, number in zip(rows, tasks, strict=True)}
        if all(
            name in board.row_of and room.get(board.row_of[name], 0) >= number
            for name, number in wanted.items()
        ):
            return True
    return False
