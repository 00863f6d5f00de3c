"""What the idle part of a node is worth to the tasks that are expected, given a price per task.

v(node) = the largest sum of prices of tasks that fit together into the node's idle CPU and GPUs.
Exactly that is a knapsack; here CPU is priced instead of counted (Lagrangian relaxation), which
splits the node into its GPUs:

    v(node) = min over lambda of  lambda * cpu + sum of f(lambda, x) over GPUs with x milli-GPU idle
    f(lambda, x) = the largest sum of (price - lambda * CPU) of tasks whose shares fit into x

so v is never below the knapsack's value, and is the least that the linear relaxation pays for the
node. f comes from tables, one per GPU model; whole GPUs also serve tasks for several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from trencadis.models.base import GPU_MILLI

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Tasks of one kind that are expected."""

    gpus: int
    milli: int
    """Of each GPU, 1 to 1,000; 0 for tasks without GPUs."""
    cpu: int
    """Milli-CPU."""
    models: frozenset[str]
    """Allowed GPU models; any where empty."""
    count: float
    """How many are expected."""
    worth: float
    """What placing one is worth, in milli-GPU."""

    def allows(self, model: str) -> bool:
        """Whether the tasks may use the GPU model."""
        return not self.models or model in self.models


class Leftover:
    """Values of idle parts of nodes at fixed prices.

    With few `rates`, v is larger than its minimum over all lambdas would be, never smaller.
    """

    def __init__(
        self,
        wanted: Sequence[Wanted],
        prices: Floats,
        models: Sequence[str],
        most_gpus: int,
        rates: Floats,
    ) -> None:
        """`prices`: milli-GPU per task of each kind; `rates`: the lambdas to try, ascending."""
        self.unit = share_unit(wanted)
        floor = max(
            (
                price / kind.cpu
                for kind, price in zip(wanted, prices, strict=True)
                if not kind.gpus and kind.cpu
            ),
            default=0.0,
        )
        # Tasks without GPUs fit anywhere and buy any CPU at this rate.
        self.rates: Floats = np.unique(np.maximum(rates, floor))
        self.pieces: Floats = np.zeros((len(models), GPU_MILLI // self.unit + 1, len(self.rates)))
        self.whole: Floats = np.zeros((len(models), most_gpus + 1, len(self.rates)))
        for row, model in enumerate(models):
            usable = [
                (kind, price)
                for kind, price in zip(wanted, prices, strict=True)
                if kind.gpus and kind.allows(model)
            ]
            self.pieces[row] = piece_values(usable, self.rates, self.unit)
            self.whole[row] = whole_values(usable, self.rates, self.pieces[row, -1], most_gpus)
        # A whole GPU is part of `whole`.
        self.pieces[:, -1] = 0

    def of(self, model: Ints, cpu: Ints, gpu: Ints) -> Floats:
        """v of nodes, in milli-GPU: model index, idle CPU, idle milli-GPU (nodes, GPUs)."""
        return np.asarray(self.by_rate(model, cpu, gpu).min(axis=1))

    def by_rate(self, model: Ints, cpu: Ints, gpu: Ints) -> Floats:
        """What v minimises, shape (nodes, rates)."""
        whole = (gpu == GPU_MILLI).sum(axis=1)
        total = cpu[:, None] * self.rates + self.whole[model, whole]
        for column in range(gpu.shape[1]):
            total += self.pieces[model, gpu[:, column] // self.unit]
        return np.asarray(total)


def share_unit(wanted: Sequence[Wanted]) -> int:
    """The largest amount of milli-GPU of which all shares and a GPU are multiples."""
    return gcd(GPU_MILLI, *(kind.milli for kind in wanted if kind.gpus))


def piece_values(usable: Sequence[tuple[Wanted, float]], rates: Floats, unit: int) -> Floats:
    """f for every amount of milli-GPU of one GPU, shape (amounts, rates)."""
    net = best_by_size(usable, rates, unit)
    value: Floats = np.zeros((GPU_MILLI // unit + 1, len(rates)))
    for room in range(1, len(value)):
        best = value[room - 1].copy()
        for size, gain in net.items():
            if size <= room:
                np.maximum(best, value[room - size] + gain, out=best)
        value[room] = best
    return value


def best_by_size(
    usable: Sequence[tuple[Wanted, float]], rates: Floats, unit: int
) -> dict[int, Floats]:
    """Units of a GPU -> the most that one task of that size pays beyond its CPU, per rate."""
    net: dict[int, Floats] = {}
    for kind, price in usable:
        if kind.gpus == 1:
            gain = price - rates * kind.cpu
            size = kind.milli // unit
            net[size] = np.maximum(net[size], gain) if size in net else gain
    return net


def whole_values(
    usable: Sequence[tuple[Wanted, float]], rates: Floats, single: Floats, most: int
) -> Floats:
    """What a number of whole GPUs is worth, shape (GPUs, rates); `single`: one by itself."""
    value: Floats = np.zeros((most + 1, len(rates)))
    several = [(kind, price) for kind, price in usable if kind.gpus > 1]
    for count in range(1, most + 1):
        best = value[count - 1] + single
        for kind, price in several:
            if kind.gpus <= count:
                np.maximum(best, value[count - kind.gpus] + price - rates * kind.cpu, out=best)
        value[count] = best
    return value
