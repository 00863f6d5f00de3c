"""Which policies there are, by name, with the switches that take something away."""

from __future__ import annotations

from dataclasses import dataclass

from trencadis.models import Fault, InvalidInputError, Snapshot
from trencadis.models.trace import Trace
from trencadis.whatif.decisions import SchedulingPolicy
from trencadis.whatif.policies.backfill import Easy
from trencadis.whatif.policies.best_fit import Greedy
from trencadis.whatif.policies.fgd import LeastGradient
from trencadis.whatif.policies.fifo import Fifo
from trencadis.whatif.policies.priority import Priority
from trencadis.whatif.policies.size_queues import SizeQueues
from trencadis.whatif.policies.switches import (
    SWITCHES,
    Kill,
    NoGang,
    without_elasticity,
    without_slices,
)
from trencadis.whatif.policies.volcano import Volcano

POLICIES = (
    "fifo",
    "priority",
    "size-queues",
    "backfill",
    "best-fit",
    "fgd",
    "volcano",
    "trencadis",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy ready to replay a trace, and the trace as it sees it."""

    name: str
    policy: SchedulingPolicy
    trace: Trace
    gangs: bool


def check_names(names: list[str]) -> list[str]:
    """The names, `all` replaced by all policies. Raises InvalidInputError for unknown ones."""
    faults = []
    result: list[str] = []
    for spec in names:
        base, *switches = spec.split("+")
        unknown = [switch for switch in switches if switch not in SWITCHES]
        if base not in (*POLICIES, "all"):
            faults.append(
                Fault("policy", f"no policy {base!r}; there are {', '.join(POLICIES)}, all")
            )
        elif unknown:
            faults.append(
                Fault("policy", f"no switch {unknown[0]!r}; there are {', '.join(SWITCHES)}")
            )
        else:
            bases = POLICIES if base == "all" else (base,)
            result += ["+".join((name, *switches)) for name in bases]
    if faults:
        raise InvalidInputError(faults)
    return list(dict.fromkeys(result))


def contender(spec: str, trace: Trace, snapshot: Snapshot, effort: float, seed: int) -> Contender:
    """The policy by its name and switches, as `volcano+kill`."""
    (spec,) = check_names([spec])
    base, *switches = spec.split("+")
    if "no-mig" in switches:
        trace = without_slices(trace)
    if "no-elastic" in switches:
        trace = without_elasticity(trace)
    policy = _policy(base, trace, snapshot, effort, seed)
    if "no-gang" in switches:
        policy = NoGang(policy)
    if "kill" in switches:
        policy = Kill(policy)
    return Contender(spec, policy, trace, gangs="no-gang" not in switches)


def _policy(
    base: str, trace: Trace, snapshot: Snapshot, effort: float, seed: int
) -> SchedulingPolicy:
    if base == "fifo":
        return Fifo()
    if base == "priority":
        return Priority()
    if base == "size-queues":
        return SizeQueues(trace, snapshot)
    if base == "backfill":
        return Easy()
    if base == "best-fit":
        return Greedy()
    if base == "fgd":
        return Greedy("fgd", LeastGradient(trace, snapshot))
    if base == "volcano":
        return Volcano()
    from trencadis.whatif.policies.solver import Solver  # noqa: PLC0415 - loads ortools

    return Solver(effort, seed)
