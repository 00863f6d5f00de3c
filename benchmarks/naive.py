"""The plain model, for comparison: a Boolean for each job and node, a count for each gang and node.

One weighted sum: what pending jobs cost by waiting (the weights of `priority_mode: weighted`), and
each GPU that a guarantee falls short at a price above any GPU's wait. It knows GPUs, CPUs, memory,
GPU models, required levels, limits of queues and users, guarantees and gangs; distance, slower
GPUs, preferred levels and fragmentation cost it nothing, so its problem is the easier one.

    python benchmarks/naive.py SNAPSHOT [--time-limit S] [--workers N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ortools.sat.python import cp_model

from trencadis.models import Job, Snapshot, load_snapshot
from trencadis.solver.capacity import Capacity, NodeState, capacity
from trencadis.solver.worth import Values, values

Terms = list[tuple[cp_model.IntVar, int]]


class Naive:
    """The model of one snapshot without MIG, shares, holds and groups."""

    def __init__(self, snapshot: Snapshot) -> None:
        policy = snapshot.policy.model_copy(update={"priority_mode": "weighted"})
        self.snapshot = snapshot.model_copy(update={"policy": policy})
        self.supply: Capacity = capacity(self.snapshot)
        self.values: Values = values(self.snapshot, self.supply)
        self.model = cp_model.CpModel()
        self.start: dict[str, cp_model.IntVar] = {}
        self.tasks: dict[tuple[str, str], cp_model.IntVar] = {}
        self.loads: defaultdict[tuple[str, str], Terms] = defaultdict(list)
        self.costs: Terms = []
        self.do_nothing = 0
        self.price = self._price()
        self._jobs()
        self._nodes()
        self._queues()
        total = sum(worth.wait for worth in self.values.worth.values())
        self.do_nothing += total
        starts = [(self.start[name], -w.wait) for name, w in self.values.worth.items()]
        self.model.minimize(weighted([*starts, *self.costs]) + total)

    def solve(
        self, time_limit_s: float, workers: int, seed: int = 0
    ) -> tuple[cp_model.CpSolver, str]:
        """CP-SAT on the model as it is, and how it ended."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = time_limit_s
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = seed
        status = solver.solve(self.model)
        return solver, solver.status_name(status)

    def starts(self, solver: cp_model.CpSolver) -> dict[str, dict[str, int]]:
        """The jobs that start, with their tasks by node."""
        found: dict[str, dict[str, int]] = {}
        for (job, node), variable in self.tasks.items():
            if count := solver.value(variable):
                found.setdefault(job, {})[node] = count
        return found

    def _jobs(self) -> None:
        """Each job's tasks: all of them on nodes of one model and one required domain, or none."""
        for name, job in self.values.eligible.items():
            start = self.model.new_bool_var(name)
            self.start[name] = start
            choices: dict[tuple[str | None, tuple[str, ...]], Terms] = {}
            for state in self.supply.states:
                model = next(iter(state.idle), None)
                at_most = room(job, state)
                if at_most:
                    variable = self.model.new_int_var(0, at_most, f"{name}@{state.name}")
                    self.tasks[name, state.name] = variable
                    key = (model if job.request.gpus else None, self._domain(job, state))
                    choices.setdefault(key, []).append((variable, 1))
                    self._load(job, state, variable)
            chosen: Terms = []
            for terms in choices.values():
                one = self.model.new_bool_var("")
                chosen.append((one, 1))
                self.model.add(weighted([*terms, (one, -job.tasks)]) == 0)
            self.model.add(weighted([*chosen, (start, -1)]) == 0)

    def _domain(self, job: Job, state: NodeState) -> tuple[str, ...]:
        """The domain of the level that the job requires; all of the cluster where it does not."""
        topology = job.topology
        if job.tasks == 1 or topology is None or topology.mode != "required":
            return ()
        waited = (self.snapshot.now - job.submit).total_seconds()
        relax = topology.relax_after_seconds
        if relax is not None and waited >= relax:
            return ()
        if topology.level == "node":
            return (*state.node.fabric, state.name)
        return state.node.fabric[: self.snapshot.fabric.depth_of(topology.level)]

    def _load(self, job: Job, state: NodeState, tasks: cp_model.IntVar) -> None:
        request = job.request
        for kind, amount in (
            ("gpus", request.gpus),
            ("cpu_milli", request.cpu_milli),
            ("memory_mib", request.memory_mib),
        ):
            if amount:
                self.loads[state.name, kind].append((tasks, amount))

    def _nodes(self) -> None:
        for state in self.supply.states:
            free = {
                "gpus": state.idle_count,
                "cpu_milli": state.free[0],
                "memory_mib": state.free[1],
            }
            for kind, amount in free.items():
                if terms := self.loads.get((state.name, kind)):
                    self.model.add(weighted(terms) <= amount)

    def _queues(self) -> None:
        """Limits of queues and users, and the shortfall of guarantees, in GPUs."""
        unit = self.values.rates.unit
        tree = self.values.tree
        in_use: defaultdict[str, int] = defaultdict(int)
        by_user: defaultdict[tuple[str, str], int] = defaultdict(int)
        started: defaultdict[str, Terms] = defaultdict(list)
        of_user: defaultdict[tuple[str, str], Terms] = defaultdict(list)
        for job in self.snapshot.jobs:
            units = self.values.rates.sizes.job(job)
            for owner in tree.chain(job.queue) if units else ():
                if job.on_nodes:
                    in_use[owner] += units
                    by_user[owner, job.user] += units
                elif job.name in self.start:
                    started[owner].append((self.start[job.name], units))
                    of_user[owner, job.user].append((self.start[job.name], units))
        for name, queue in tree.queues.items():
            terms = started[name]
            limit = queue.limit.quota.total_milli()
            if limit is not None and terms:
                self.model.add(weighted(terms) <= max(0, limit * unit // 1_000 - in_use[name]))
            per_user = queue.limit.quota_per_user.total_milli()
            if per_user is not None:
                for (where, user), theirs in of_user.items():
                    if where == name:
                        rest = per_user * unit // 1_000 - by_user[name, user]
                        self.model.add(weighted(theirs) <= max(0, rest))
            guarantee = queue.guarantee.total_milli()
            if guarantee is not None:
                asked = sum(units for _, units in terms)
                missing = min(guarantee * unit // 1_000 - in_use[name], asked)
                if missing > 0:
                    short = self.model.new_int_var(0, missing // unit, f"short of {name}")
                    self.model.add(weighted([(short, unit), *terms]) >= missing // unit * unit)
                    self.costs.append((short, self.price))
                    self.do_nothing += missing // unit * self.price

    def _price(self) -> int:
        """Of a GPU that a guarantee falls short: more than the wait of any GPU."""
        unit = self.values.rates.unit
        waits = [w.wait * unit // w.units for w in self.values.worth.values() if w.units]
        return 1 + max(waits, default=0)


def room(job: Job, state: NodeState) -> int:
    """The most tasks of the job that fit on the node."""
    request = job.request
    most = min(job.tasks, job.max_tasks_per_node or job.tasks)
    if request.gpus:
        if job.gpu_models and not set(job.gpu_models) & set(state.idle):
            return 0
        most = min(most, state.idle_count // request.gpus)
    if request.cpu_milli:
        most = min(most, state.free[0] // request.cpu_milli)
    if request.memory_mib:
        most = min(most, state.free[1] // request.memory_mib)
    return most


def weighted(terms: Iterable[tuple[cp_model.IntVar, int]]) -> cp_model.LinearExprT:
    """The sum of variable times coefficient, built in one go."""
    pairs = list(terms)
    return cp_model.LinearExpr.weighted_sum([v for v, _ in pairs], [c for _, c in pairs])


def measure(snapshot: Snapshot, time_limit_s: float, workers: int) -> dict[str, object]:
    """Builds and solves the plain model; times, objective, bound and gap."""
    begin = time.perf_counter()
    naive = Naive(snapshot)
    built = time.perf_counter()
    solver, status = naive.solve(time_limit_s, workers)
    end = time.perf_counter()
    known = status in ("OPTIMAL", "FEASIBLE")
    objective = round(solver.objective_value) if known else naive.do_nothing
    bound = round(solver.best_objective_bound)
    span = naive.do_nothing - bound
    return {
        "booleans": len(naive.tasks),
        "build_s": round(built - begin, 3),
        "solve_s": round(end - begin, 3),
        "objective": objective,
        "bound": bound,
        "do_nothing": naive.do_nothing,
        "gap": (objective - bound) / span if span else 0.0,
        "status": status,
        "started": len(naive.starts(solver)) if known else 0,
    }


def main() -> None:
    """Reads a snapshot, prints the measurement as JSON."""
    parser = argparse.ArgumentParser(description="The plain job-by-node model.")
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--time-limit", type=float, default=30.0, metavar="S")
    parser.add_argument("--workers", type=int, default=8, metavar="N")
    args = parser.parse_args()
    snapshot, _ = load_snapshot(args.snapshot.read_bytes())
    print(json.dumps(measure(snapshot, args.time_limit, args.workers)))


if __name__ == "__main__":
    main()
