"""What a waiting job costs, and what a placed one loses to distance (problem.md, 5)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from trencadis.models import Job, Missing
from trencadis.models.base import seconds
from trencadis.solver.verify.linked import is_linked
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.supply import NodeState


class Costs:
    """Waiting and spread of the jobs of one situation, in weighted GPU-seconds."""

    def __init__(self, situation: Situation) -> None:
        self.of = situation
        self.policy = situation.snapshot.policy
        self.pcie = self.policy.slowdown("pcie")
        self._best: dict[tuple[object, ...], int] = {}

    @cached_property
    def waits(self) -> dict[str, int]:
        """wait_j of each eligible job."""
        return {name: self._wait(job) for name, job in self.of.eligible.items()}

    def _wait(self, job: Job) -> int:
        of, tau = self.of, self.policy.aging_seconds
        name = job.name
        tasks = job.gang_tasks if isinstance(job, Missing) else job.minimum
        size = of.scale.size(of.asks[name], tasks)
        product = of.tier_weight(job) * of.weight(job) * (tau + of.waited[name])
        product *= of.shares[name] * size * self.policy.horizon_seconds
        return max(1, -(-product // (1_000 * tau * 1_000 * of.scale.unit)))

    def spread(self, placed: Placed) -> int:
        """spread_j of a job on its nodes."""
        job = placed.job
        levels = self.of.levels
        speed = self.speed(job, placed.model)
        apart = _unlinked_tasks(placed, self.of.states)
        several = len(placed.tasks) > 1 and job.communicates and placed.depth == levels.node
        several = several and not isinstance(job, Missing)
        together = _unlinked_node(placed, self.of.states) if several else apart
        loss = self.loss(job, placed.depth)
        if speed == 1_000 and not loss and not together:
            return 0
        near = self._cost(placed, speed, loss, together)
        if not several:
            return near
        # Tasks on one node may also talk through the network, as if they were apart.
        return min(near, self._cost(placed, speed, self.loss(job, levels.node - 1), apart))

    def _cost(self, placed: Placed, speed: int, loss: int, unlinked: list[int]) -> int:
        """A + Σ B, with the sizes of the sets of GPUs that are not linked."""
        of, ask = self.of, placed.ask
        base = of.tier_weight(placed.job) * self.policy.share_floor_milli * self._rest(placed.job)
        whole = 1_000_000 - speed * (1_000 - loss)
        divisor = 1_000 * 1_000_000 * of.scale.unit
        job = placed.job
        tasks = job.gang_tasks if isinstance(job, Missing) else len(placed.tasks)
        cost = base * of.scale.size(ask, tasks) * whole // divisor
        for gpus in unlinked:
            cost += base * gpus * of.scale.unit * speed * self.pcie // divisor
        return cost

    def loss(self, job: Job, depth: int) -> int:
        """L: thousandths lost to the distance between tasks that share a domain of this depth."""
        levels = self.of.levels
        if depth == levels.node:
            return 0
        loss = levels.slowdown[depth] if job.communicates else 0
        if depth < levels.preferred(job, self.of.waited[job.name]):
            loss += self.policy.missed_preference_milli
        return loss

    def speed(self, job: Job, model: str | None) -> int:
        """v: speed on the model relative to the fastest that is allowed and present."""
        if model is None:
            return 1_000
        if not job.speed_milli and not self.policy.gpu_speed_milli:
            return 1_000
        key = (job.gpu_models, tuple(sorted(job.speed_milli.items())))
        best = self._best.get(key)
        if best is None:
            present = self.of.scale.by_model
            allowed = [m for m in present if not job.gpu_models or m in job.gpu_models]
            best = max((self._nominal(job, m) for m in allowed), default=0)
            self._best[key] = best
        # A job may run on a model that it would not be started on; it is compared all the same.
        nominal = self._nominal(job, model)
        return max(1, 1_000 * nominal // max(best, nominal))

    def _nominal(self, job: Job, model: str) -> int:
        return job.speed_milli.get(model, self.policy.gpu_speed_milli.get(model, 1_000))

    def _rest(self, job: Job) -> int:
        horizon = self.policy.horizon_seconds
        if job.runtime_seconds is None:
            return horizon
        ran = self.of.now - seconds(job.start) if job.on_nodes and job.start is not None else 0
        return min(horizon, max(0, job.runtime_seconds - ran))


def _unlinked_tasks(placed: Placed, states: Mapping[str, NodeState]) -> list[int]:
    """Sizes of the tasks whose GPUs have to talk without NVLink."""
    size = placed.ask.gpus
    if size < 2:
        return []
    found = []
    for task in placed.tasks:
        state = states[task.node]
        if not is_linked(state.node, state.counted, task.gpus):
            found.append(size)
    return found


def _unlinked_node(placed: Placed, states: Mapping[str, NodeState]) -> list[int]:
    """The size of a job on one node, if its GPUs together are not linked."""
    size = placed.ask.gpus * len(placed.tasks)
    if size < 2:
        return []
    state = states[placed.tasks[0].node]
    gpus: list[int] | None = []
    for task in placed.tasks:
        gpus = None if gpus is None or task.gpus is None else [*gpus, *task.gpus]
    return [] if is_linked(state.node, state.counted, gpus) else [size]
