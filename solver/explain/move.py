"""The fewest running jobs to move elsewhere so that a job fits where they were.

An integer program: each movable job goes to one node, the waiting job to some, nothing overflows;
as few jobs as possible go where they are not, and of those as few GPUs. On larger clusters only a
window of nodes is looked at: then what is found is verified, but not proven the fewest.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.models.explanation import Relocation
from trencadis.solver.admission import Admission, admission
from trencadis.solver.capacity import NodeState, vector
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.explain.menus import Occupants, occupants, states_without
from trencadis.solver.explain.place import Place
from trencadis.solver.preempt.victims import gpus_of
from trencadis.solver.program import INFINITE, Objective, Program
from trencadis.solver.shapes import Way

WINDOW = 16
"""Nodes that are looked at together."""
SMALL = Effort(seconds=2.0, workers=1, seed=0, deterministic=True)
LARGE = Effort(seconds=0.4, workers=1, seed=0, deterministic=True)
"""For a window of a larger cluster, where nothing is proven anyway."""
PER_JOB = 100_000
"""One job moved outweighs any number of GPUs that move with it."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Who goes where."""

    relocations: tuple[Relocation, ...]
    gpus: int
    fewest: bool


@dataclass(frozen=True, slots=True)
class _Resident:
    """A job that sits on one node and may move as a whole."""

    job: Job
    node: str
    model: str | None
    needs: tuple[int, ...]
    """CPU, memory, resources of all its tasks."""
    gpus: int


class Mover:
    """Finds moves among the nodes of a snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        place: Place,
        states: Sequence[NodeState],
        stay: Collection[str] = frozenset(),
    ) -> None:
        """`states`: the nodes as they are. `stay`: jobs that are not to be moved."""
        self.snapshot, self.place, self.stay = snapshot, place, stay
        self.supply = place.supply
        self.resources = place.supply.resources
        self.idle = {
            state.name: {model: len(gpus) for model, gpus in state.idle.items()}
            for state in states
        }
        self.here = occupants(snapshot)
        self.nodes = {
            node.name: node
            for node in sorted(snapshot.nodes, key=lambda node: node.name)
            if not (node.down or node.cordoned)
        }

    def fewest(self, job: Job, models: Iterable[str | None]) -> Moves | None:
        """The fewest moves after which the job fits on one of the models."""
        allowed = set(models)
        look = self.place.look(job, self.place.supply.empty)
        best: tuple[int, Moves] | None = None
        for alternative in look.ways:
            way = alternative.way
            if way.need.model not in allowed or way.segment or way.need.exclusive:
                continue
            open_ = [n for n in self.nodes if way.need.columns >> look.column[n] & 1]
            if way.need.gpus:
                model = way.need.model
                open_ = [n for n in open_ if model in self.nodes[n].healthy_gpus().values()]
            found = self._for_way(job, way, open_)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
            if best is not None and len(self.nodes) > WINDOW:
                break  # not proven the fewest in any case
        return None if best is None else best[1]

    def _for_way(self, job: Job, way: Way, open_: Sequence[str]) -> tuple[int, Moves] | None:
        names = self._window(way, open_)
        if not set(names) & set(open_):
            return None
        residents, spare = self._read(names)
        movable = [r.job for r in residents]
        admitted = admission(self.snapshot, movable, [self.nodes[name] for name in names])
        program, columns, cost = _program(
            self.place, job, way, names, set(open_), residents, spare, self.nodes, admitted
        )
        program.objectives.append(cost)
        window = Window(program.low, program.high)
        whole = len(names) == len(self.nodes)
        effort = SMALL if whole else LARGE
        found = search(program, cost, window, program.rest, None, effort, threading.Event())
        if found.solution is None:
            return None
        goes = {
            r: name
            for (r, name), column in columns.items()
            if found.solution[column] and name != residents[r].node
        }
        relocations = self._seat(residents, goes)
        if relocations is None:
            return None
        gpus = sum(residents[r].gpus for r in goes)
        return cost.value(found.solution), Moves(relocations, gpus, found.optimal and whole)

    def _window(self, way: Way, open_: Sequence[str]) -> list[str]:
        """All nodes of a small cluster; else the nearest to fit the job, and the emptiest."""
        if len(self.nodes) <= WINDOW:
            return list(self.nodes)
        idle = {name: by_model.get(way.need.model or "", 0) for name, by_model in self.idle.items()}
        free = sorted((n for n in open_ if n in idle), key=lambda n: (-idle[n], n))
        if way.depth and way.depth <= self.place.fabric.depth and free:
            # Of one domain, for the job must stay in it: the one with the most that is idle.
            total: defaultdict[tuple[str, ...], int] = defaultdict(int)
            for name in free:
                total[self.place.fabric.path[name][: way.depth]] += idle[name]
            best = max(sorted(total), key=lambda domain: total[domain])
            free = [n for n in free if self.place.fabric.path[n][: way.depth] == best]
        targets = free[: max(WINDOW // 2, min(WINDOW - 4, way.count + 4))]
        others = sorted(
            (n for n in idle if n not in targets), key=lambda n: (-idle[n], n)
        )
        return sorted([*targets, *others[: WINDOW - len(targets)]])

    def _read(
        self, names: Sequence[str]
    ) -> tuple[list[_Resident], dict[str, dict[str, list[int]]]]:
        """Who may move, and per node the figures without them: GPUs by model, then the rest."""
        residents: list[_Resident] = []
        spare: dict[str, dict[str, list[int]]] = {}
        for name in names:
            node, here = self.nodes[name], self.here.get(name, [])
            healthy = node.healthy_gpus()
            movable = {
                key: found for key, found in _movable(here, healthy).items() if key not in self.stay
            }
            mig = {entry.gpu for entry in node.mig}
            stays = [(job, task) for job, task in here if job.name not in movable]
            taken = {i for _, task in stays for i in task.gpus or ()}
            counts: dict[str, list[int]] = {model: [0] for model in set(healthy.values())}
            for index, model in healthy.items():
                if index not in mig and index not in taken:
                    counts[model][0] += 1
            unknown = any(task.gpus is None and job.request.gpus for job, task in stays)
            if unknown or any(job.exclusive and job.on_nodes for job, _ in stays):
                counts = {model: [0] for model in counts}
            free = [node.cpu_milli, node.memory_mib]
            free += [node.resources.get(key, 0) for key in self.resources]
            for job, _ in stays:
                takes = vector(job, self.resources)
                free = [have - use for have, use in zip(free, takes, strict=True)]
            spare[name] = {**counts, "": free}
            residents.extend(
                _Resident(
                    job,
                    name,
                    model,
                    tuple(len(job.allocation) * n for n in vector(job, self.resources)),
                    gpus_of(job),
                )
                for job, model in sorted(movable.values(), key=lambda pair: pair[0].name)
            )
        return residents, spare

    def _seat(
        self, residents: Sequence[_Resident], goes: Mapping[int, str]
    ) -> tuple[Relocation, ...] | None:
        """GPU indices on the new nodes: the lowest that are idle once all movers have left."""
        leaving = {residents[r].job.name for r in goes}
        idle: dict[str, dict[str, list[int]]] = {}
        counted: set[str] = set()
        for state in states_without(self.snapshot, self.here, tuple(leaving), self.supply):
            idle[state.name] = {model: list(gpus) for model, gpus in state.idle.items()}
            if state.counted:
                counted.add(state.name)
        found = []
        for r, name in sorted(goes.items(), key=lambda item: residents[item[0]].job.name):
            resident = residents[r]
            chips = idle[name].get(resident.model or "", [])
            if len(chips) < resident.gpus:
                return None
            each = resident.job.request.gpus
            tasks = []
            for _ in resident.job.allocation:
                mine, chips[:each] = tuple(chips[:each]), []
                tasks.append(TaskAllocation(node=name, gpus=None if name in counted else mine))
            found.append(Relocation(job=resident.job.name, to=tuple(tasks)))
        return tuple(found)


def _movable(
    here: Occupants, healthy: Mapping[int, str]
) -> dict[str, tuple[Job, str | None]]:
    """Jobs that may move: preemptible, wholly on this node, whole GPUs of one known model."""
    found: dict[str, tuple[Job, str | None]] = {}
    for job, task in here:
        node = task.node
        if (
            job.state != "running"
            or not job.preemptible
            or job.exclusive
            or job.nvlink_required
            or job.request.share is not None
            or any(part.node != node or part.gpus is None or part.mig for part in job.allocation)
        ):
            continue
        models = {healthy.get(i) for part in job.allocation for i in part.gpus or ()}
        if len(models) <= 1 and None not in models:
            found[job.name] = (job, next(iter(models), None))
    return found


def _program(
    place: Place,
    job: Job,
    way: Way,
    names: Sequence[str],
    open_: set[str],
    residents: Sequence[_Resident],
    spare: Mapping[str, Mapping[str, Sequence[int]]],
    nodes: Mapping[str, Node],
    admitted: Admission,
) -> tuple[Program, dict[tuple[int, str], int], Objective]:
    """Columns: resident r on node n; how many needs of the job on node n; its domain."""
    program, cost = Program(), Objective("moves")
    columns: dict[tuple[int, str], int] = {}
    for r, resident in enumerate(residents):
        mask = admitted.masks[resident.job.name]
        cost.constant += PER_JOB + resident.gpus
        for name in names:
            stays = name == resident.node
            if not stays and not mask >> admitted.column[name] & 1:
                continue
            if resident.gpus and resident.model not in spare[name]:
                continue
            columns[(r, name)] = program.column(0, 1, rest=int(stays))
            if stays:
                cost.add(columns[(r, name)], -(PER_JOB + resident.gpus))
        program.row(((columns[(r, n)], 1) for n in names if (r, n) in columns), 1, 1)
    cap = way.count
    if job.max_tasks_per_node is not None:
        cap = min(cap, max(1, job.max_tasks_per_node // way.need.sets))
    needs = {name: program.column(0, cap) for name in names if name in open_}
    program.row(((column, 1) for column in needs.values()), way.count, way.count)
    _domains(place, way, program, needs, cap)
    for name in names:
        here = [(r, columns[(r, name)]) for r in range(len(residents)) if (r, name) in columns]
        for model in sorted(set(nodes[name].healthy_gpus().values())):
            terms = [(c, residents[r].gpus) for r, c in here if residents[r].model == model]
            if name in needs and way.need.model == model:
                terms.append((needs[name], way.need.gpus))
            program.row(terms, -INFINITE, max(0, spare[name][model][0]))
        for d, have in enumerate(spare[name][""]):
            terms = [(c, residents[r].needs[d]) for r, c in here]
            if name in needs:
                terms.append((needs[name], way.need.need[d]))
            # What is overcommitted already need not be mended, only not made worse.
            now = sum(entry.needs[d] for entry in residents if entry.node == name)
            program.row(terms, -INFINITE, max(have, now))
    return program, columns, cost


def _domains(
    place: Place, way: Way, program: Program, needs: Mapping[str, int], cap: int
) -> None:
    """The needs of a job that must stay near each other are all in one domain."""
    if not 1 <= way.depth <= place.fabric.depth:
        return
    chosen: dict[tuple[str, ...], int] = {}
    for name, column in needs.items():
        domain = place.fabric.path[name][: way.depth]
        if domain not in chosen:
            chosen[domain] = program.column(0, 1)
        program.row([(column, 1), (chosen[domain], -cap)], -INFINITE, 0)
    program.row(((column, 1) for column in chosen.values()), 1, 1)
