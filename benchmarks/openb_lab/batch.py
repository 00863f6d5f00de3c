"""Rounds: a batch of pods placed together, by a program over ways to fill single nodes.

A column puts some pods of the batch on one node and costs what `value` says the node loses. Columns
grow greedily at the duals of the linear relaxation (column generation, priced by heuristic); CP-SAT
chooses among them: each node at most one, each kind at most as many as arrived. What it leaves out,
and still fits, is placed one at a time afterwards, so nothing is dropped that fits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from openb_lab.cluster import Cluster
from openb_lab.scores import Scores
from openb_lab.states import States, apply, options
from openb_lab.value import BUCKET, Value
from openb_lab.workload import Floats, Ints

SPARE = 4
"""Candidate nodes per kind beyond one for each of its pods."""
DEPTH = 6
"""Most pods that a column puts on a node."""
PRICINGS = 3
EFFORT = 0.1
"""Limit of CP-SAT in its deterministic time, so that a run does not depend on the machine."""
PLACED = 1.1
"""What placing a pod counts, by its worth: pods that cost more of what is left come last."""


@dataclass(frozen=True, slots=True)
class Column:
    """Pods on one node, in order, with the GPU of each share."""

    node: int
    kinds: tuple[int, ...]
    gpus: tuple[int, ...]
    gain: float
    """What placing them counts less the loss."""


class Losses:
    """`Value` with exact losses as scores, for `Scores` to keep."""

    def __init__(self, policy: Value, order: Ints) -> None:
        self.policy = policy
        self.every = policy.every
        self.tie = BUCKET * order / len(order)

    def refresh(self) -> None:
        """New prices."""
        self.policy.refresh()

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """See `policies.Policy`."""
        loss, gpu = self.policy.losses(kind, nodes)
        return -loss - self.tie[nodes], gpu


class Rounds:
    """Places batches."""

    def __init__(self, policy: Value, rng: np.random.Generator) -> None:
        self.policy = policy
        self.cluster: Cluster = policy.cluster
        order = rng.permutation(len(self.cluster.cpu))
        self.losses = Losses(policy, order)
        self.scores = Scores(self.cluster, self.losses)

    def place(self, batch: list[int]) -> list[bool]:
        """Whether each pod of the batch found a place."""
        self.scores.arrive(len(batch))
        wanted = Counter(batch)
        placed: Counter[int] = Counter()
        for column in self._choose(wanted):
            for kind, gpu in zip(column.kinds, column.gpus, strict=True):
                self.cluster.place(kind, column.node, gpu)
                placed[kind] += 1
        rest = sorted((wanted - placed).elements(), key=self._size, reverse=True)
        for kind in rest:
            score, choice = self.scores.of(kind)
            node = int(score.argmax())
            if score[node] > -np.inf:
                self.cluster.place(kind, node, int(choice[node]))
                placed[kind] += 1
        done = []
        for kind in batch:
            done.append(placed[kind] > 0)
            placed[kind] -= 1
        return done

    def _size(self, kind: int) -> tuple[int, int]:
        return self.cluster.kinds[kind].total, self.cluster.kinds[kind].cpu

    def _worth(self, kind: int) -> float:
        asked = self.cluster.kinds[kind]
        return PLACED * (asked.total or 1_000 * asked.cpu / self.policy.cpu_per_gpu)

    def _choose(self, wanted: Counter[int]) -> list[Column]:
        kinds = sorted(wanted)
        nodes = self._candidates(wanted)
        if not len(nodes):
            return []
        pool = Pool(self, wanted, kinds, nodes)
        for _ in range(PRICINGS):
            if not pool.grow(pool.duals()):
                break
        return pool.pick()

    def _candidates(self, wanted: Counter[int]) -> Ints:
        chosen: set[int] = set()
        for kind, count in wanted.items():
            score, _ = self.scores.of(kind)
            most = min(count + SPARE, int((score > -np.inf).sum()))
            chosen |= set(np.argsort(-score, kind="stable")[:most].tolist())
        return np.array(sorted(chosen), dtype=np.int64)


class Pool:
    """Columns of one round."""

    def __init__(self, rounds: Rounds, wanted: Counter[int], kinds: list[int], nodes: Ints) -> None:
        self.policy = rounds.policy
        self.tie = rounds.losses.tie
        self.kinds = kinds
        self.counts = [wanted[kind] for kind in kinds]
        self.worth = np.array([rounds._worth(kind) for kind in kinds])
        self.nodes = nodes
        self.columns: list[Column] = []
        self._known: set[tuple[int, tuple[int, ...]]] = set()
        start = States.now(rounds.cluster, nodes)
        self.first = options(self.policy, start, kinds)
        loss, gpu = self.first
        for row, column in zip(*np.nonzero(np.isfinite(loss)), strict=True):
            gain = self.worth[column] - loss[row, column] - self.tie[nodes[row]]
            self._add(int(nodes[row]), (kinds[column],), (int(gpu[row, column]),), float(gain))

    def _add(self, node: int, kinds: tuple[int, ...], gpus: tuple[int, ...], gain: float) -> bool:
        key = (node, tuple(sorted(kinds)))
        if key in self._known:
            return False
        self._known.add(key)
        self.columns.append(Column(node, kinds, gpus, gain))
        return True

    def duals(self) -> Floats:
        """Of the kinds' rows, in milli-GPU."""
        solver = pywraplp.Solver.CreateSolver("GLOP")
        goal = solver.Objective()
        goal.SetMaximization()
        low = -solver.infinity()
        room = {int(node): solver.RowConstraint(low, 1, "") for node in self.nodes}
        rows = {
            kind: solver.RowConstraint(low, count, "")
            for kind, count in zip(self.kinds, self.counts, strict=True)
        }
        for column in self.columns:
            variable = solver.NumVar(0, 1, "")
            goal.SetCoefficient(variable, column.gain)
            room[column.node].SetCoefficient(variable, 1)
            for kind, count in Counter(column.kinds).items():
                rows[kind].SetCoefficient(variable, count)
        solver.Solve()
        return np.array([rows[kind].dual_value() for kind in self.kinds])

    def grow(self, duals: Floats) -> int:
        """Extends each node's best single pod by the best next ones at these duals; how many."""
        added = 0
        loss, gpu = self.first
        states = States.now(self.policy.cluster, self.nodes)
        rows = np.arange(len(self.nodes))
        held = [Counter[int]() for _ in self.nodes]
        paths: list[tuple[tuple[int, ...], tuple[int, ...], float]] = [((), (), 0.0) for _ in rows]
        counts = np.array(self.counts)
        for _ in range(DEPTH):
            used = np.array([[held[r][k] for k in range(len(counts))] for r in rows])
            net = np.where(used < counts, (self.worth - duals) - loss, -np.inf)
            best = net.argmax(axis=1)
            keep = np.flatnonzero(net[np.arange(len(rows)), best] > -BUCKET)
            if not len(keep):
                break
            best, chosen = best[keep], gpu[keep, best[keep]]
            step = loss[keep, best]
            rows = rows[keep]
            states = states.rows(keep)
            apply(self.policy, states, np.array(self.kinds)[best], chosen)
            for position, row in enumerate(rows):
                kinds, gpus, gain = paths[row]
                k = int(best[position])
                held[row][k] += 1
                gain += float(self.worth[k] - step[position])
                paths[row] = ((*kinds, self.kinds[k]), (*gpus, int(chosen[position])), gain)
                tie = self.tie[self.nodes[row]]
                added += self._add(int(self.nodes[row]), *paths[row][:2], gain - tie)
            loss, gpu = options(self.policy, states, self.kinds)
        return added

    def pick(self) -> list[Column]:
        """The best choice that CP-SAT finds."""
        model = cp_model.CpModel()
        chosen = [model.new_bool_var("") for _ in self.columns]
        room: dict[int, list[int]] = {}
        use: dict[int, list[tuple[int, int]]] = {kind: [] for kind in self.kinds}
        for position, column in enumerate(self.columns):
            room.setdefault(column.node, []).append(position)
            for kind, count in Counter(column.kinds).items():
                use[kind].append((position, count))
        for members in room.values():
            model.add_at_most_one(chosen[i] for i in members)
        for kind, count in zip(self.kinds, self.counts, strict=True):
            model.add(
                cp_model.LinearExpr.weighted_sum(
                    [chosen[i] for i, _ in use[kind]], [n for _, n in use[kind]]
                )
                <= count
            )
        gains = [round(column.gain) for column in self.columns]
        model.maximize(cp_model.LinearExpr.weighted_sum(chosen, gains))
        solver = cp_model.CpSolver()
        solver.parameters.max_deterministic_time = EFFORT
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.relative_gap_limit = 1e-3
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return []
        return [c for c, x in zip(self.columns, chosen, strict=True) if solver.boolean_value(x)]
