"""Which running MIG slices to restart elsewhere so that a slice fits where they were.

By number of restarts, the fewest first: from one GPU some slices go to other starts on it, or to
what is idle on other GPUs. Where several restarts are needed, those that take slices from several
GPUs are not tried, and the number of tries is bounded: then fewer may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from trencadis.models import Job, MigInstance
from trencadis.models.explanation import Relocation
from trencadis.models.units import asks_for_mig
from trencadis.solver.admission import admission
from trencadis.solver.capacity import vector
from trencadis.solver.explain.case import Case
from trencadis.solver.pieces import MigCut, Piece
from trencadis.solver.slices import Cutter

MOST_TRIES = 20_000
"""Sets of slices of a GPU that are tried."""
MOST_RESTARTS = 7
SPARE = 8
"""Other GPUs with room that are tried for a slice, its own node's first."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """Who goes where."""

    relocations: tuple[Relocation, ...]
    slices: tuple[str, ...]
    """What each is, and from where to where, in words."""
    fewest: bool


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU in MIG mode with its instances."""

    node: str
    index: int
    cut: MigCut
    stays: tuple[MigInstance, ...]
    may: tuple[tuple[MigInstance, Job], ...]
    """Instances whose jobs may restart elsewhere."""


Spot = tuple[str, int, MigInstance]
"""Node, GPU, instance."""


class Repacker:
    """Finds restarts for one job that waits for slices."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.knife: Cutter = case.place.supply.cutter
        self.states = {state.name: state for state in case.states}
        self.gpus = list(self._gpus())
        self.tries = 0

    def fewest(self) -> Restarts | None:
        """The fewest restarts after which the job fits; None if none were found.

        For jobs of one task that asks for MIG.
        """
        job = self.case.job
        if job.minimum > 1 or not asks_for_mig(job.request):
            return None
        targets = [gpu for gpu in self.gpus if gpu.may and self._admits(job, gpu.node)]
        for number in range(1, MOST_RESTARTS + 1):
            seen: set[object] = set()
            for gpu in targets:
                pieces = self.knife.pieces(job.request, gpu.cut.model)
                # Equal cuts take the same; where slices go from there is tried for each of them.
                key = (gpu.node, gpu.cut, gpu.stays, tuple(i for i, _ in gpu.may))
                if pieces is None or key in seen or gpu.cut.model not in self.case.models:
                    continue
                seen.add(key)
                found = self._from(gpu, pieces, number)
                if found is not None:
                    return found
        return None

    def _gpus(self) -> Iterator[_Gpu]:
        jobs: dict[tuple[str, int], list[tuple[MigInstance, Job]]] = {}
        for job in self.case.base.jobs:
            for task in job.allocation if job.on_nodes else ():
                for index, instance in zip(task.gpus or (), task.mig, strict=False):
                    jobs.setdefault((task.node, index), []).append((instance, job))
        for state in self.states.values():
            for cut, index in zip(state.cuts, state.cut_gpus, strict=True):
                if isinstance(cut, MigCut) and not cut.fixed:
                    here = sorted(
                        jobs.get((state.name, index), []), key=lambda entry: entry[0].start
                    )
                    yield _Gpu(
                        state.name,
                        index,
                        cut,
                        tuple(instance for instance, job in here if not self._may_move(job)),
                        tuple(entry for entry in here if self._may_move(entry[1])),
                    )

    def _may_move(self, job: Job) -> bool:
        """Running, preemptible, with one slice only, and not just started by the plan."""
        return (
            job.state == "running"
            and job.preemptible
            and not job.exclusive
            and job.name not in self.case.starting
            and len(job.allocation) == 1
            and len(job.allocation[0].mig) == 1
        )

    def _admits(self, job: Job, node: str) -> bool:
        """Whether the node admits the job and has CPU and memory for it as it is."""
        state, resources = self.states[node], self.case.place.supply.resources
        admitted = admission(self.case.base, [job], [state.node])
        if not admitted.masks[job.name] >> admitted.column[node] & 1:
            return False
        return all(
            want <= have for want, have in zip(vector(job, resources), state.free, strict=True)
        )

    def _from(self, gpu: _Gpu, pieces: Sequence[Piece], number: int) -> Restarts | None:
        for leaving in combinations(gpu.may, number):
            self.tries += 1
            if self.tries > MOST_TRIES:
                return None
            stay = [*gpu.stays, *(i for i, job in gpu.may if (i, job) not in leaving)]
            cut = self.knife.mig_cut(gpu.cut.model, stay, (), fixed=False)
            if cut is None:
                continue
            for left in self._with(cut, pieces):
                spots = self._seated(gpu, left, leaving)
                if spots is not None:
                    return self._restarts(gpu, leaving, spots)
        return None

    def _with(self, cut: MigCut, pieces: Sequence[Piece]) -> Iterator[MigCut]:
        """The GPU once the job has its pieces there, in every way."""
        if not pieces:
            yield cut
            return
        for _, after in self.knife.places(cut, pieces[0]):
            assert isinstance(after, MigCut)
            yield from self._with(after, pieces[1:])

    def _seated(
        self, gpu: _Gpu, left: MigCut, leaving: Sequence[tuple[MigInstance, Job]]
    ) -> list[Spot] | None:
        """Where each that leaves goes: on the same GPU, else where other GPUs have room."""
        cuts: dict[tuple[str, int], MigCut] = {(gpu.node, gpu.index): left}

        def seat(i: int) -> list[Spot] | None:
            if i == len(leaving):
                return []
            instance, job = leaving[i]
            for other in self._spare(gpu, instance, job):
                key = (other.node, other.index)
                cut = cuts.get(key, other.cut)
                for start, after in self.knife.places(cut, Piece(instance.profile)):
                    if key == (gpu.node, gpu.index) and start == instance.start:
                        continue
                    assert isinstance(after, MigCut)
                    cuts[key] = after
                    rest = seat(i + 1)
                    if rest is not None:
                        return [(*key, MigInstance(profile=instance.profile, start=start)), *rest]
                    cuts[key] = cut
            return None

        return seat(0)

    def _spare(self, gpu: _Gpu, instance: MigInstance, job: Job) -> list[_Gpu]:
        """GPUs of the same model that may take a slice: its own, its node's, then others."""
        found = [gpu]
        piece = Piece(instance.profile)
        for other in sorted(self.gpus, key=lambda entry: entry.node != gpu.node):
            if len(found) > SPARE:
                break
            same = other.node == gpu.node
            if (
                other is not gpu
                and other.cut.model == gpu.cut.model
                and self.knife.most(other.cut, piece)
                and (same or self._admits(job, other.node))
            ):
                found.append(other)
        return found

    def _restarts(
        self, gpu: _Gpu, leaving: Sequence[tuple[MigInstance, Job]], spots: Sequence[Spot]
    ) -> Restarts:
        relocations, texts = [], []
        for (instance, job), (node, index, placed) in zip(leaving, spots, strict=True):
            there = {"node": node, "gpus": (index,), "mig": (placed,)}
            task = job.allocation[0].model_copy(update=there)
            relocations.append(Relocation(job=job.name, to=(task,)))
            where = f"slice {placed.start} of GPU {index}"
            if node != gpu.node:
                where += f" of {node}"
            texts.append(
                f"{job.name} ({instance.profile}) from slice {instance.start} of GPU {gpu.index} "
                f"of {gpu.node} to {where}"
            )
        return Restarts(tuple(relocations), tuple(texts), len(spots) == 1)

