"""What a guarantee to each of k teams costs: the cheapest mix that holds all claims, k by k."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trencadis.models import Snapshot
from trencadis.solver.round import Options
from trencadis.whatif.capacity.claims import Claim, claims_of, moment
from trencadis.whatif.capacity.offers import Offer
from trencadis.whatif.capacity.snapshot import Found, Search, Status, cheapest
from trencadis.whatif.capacity.target import targets
from trencadis.whatif.capacity.verdict import Attempt


@dataclass(frozen=True, slots=True)
class GuaranteeSearch:
    """What is asked."""

    snapshot: Snapshot
    teams: tuple[str, ...]
    """Leaf queues: the first k of them have the guarantee, the others what they have now."""
    each_milli: int
    """The guarantee of a team, thousandths of GPUs."""
    supply: Callable[[Snapshot], tuple[Snapshot, Sequence[Offer], bool]]
    """Of the jobs of a moment: the snapshot with the nodes that are kept, what can be had, and
    whether it has prices."""
    options: Options = field(default_factory=Options)
    tries: int = 40


@dataclass(frozen=True, slots=True)
class Step:
    """The first k teams have the guarantee."""

    teams: int
    claims: tuple[Claim, ...]
    search: Search
    found: Found

    @property
    def price_milli(self) -> int | None:
        """Of what has to be had; None where nothing was found."""
        return None if self.found.best is None else self.found.best.price_milli

    @property
    def lower_milli(self) -> int | None:
        """No mix that holds the claims costs less; None: none holds them."""
        return None if self.found.status is Status.IMPOSSIBLE else self.found.lower_milli


def steps_of(
    wanted: GuaranteeSearch,
    stop: threading.Event | None = None,
    told: Callable[[Step], None] | None = None,
    tried: Callable[[Search, Attempt], None] | None = None,
) -> tuple[Step, ...]:
    """No team, the first, the first two, …: fewer steps where `stop` was set on the way.

    `told` hears of each step, `tried` of each mix. Raises InvalidInputError.
    """
    stop = stop or threading.Event()
    found: list[Step] = []
    for number in range(len(wanted.teams) + 1):
        guarantees = dict.fromkeys(wanted.teams[:number], wanted.each_milli)
        claims = claims_of(wanted.snapshot, guarantees)
        base, offers, _ = wanted.supply(moment(wanted.snapshot, claims))
        goal = targets(["pending==0"], trace=False)
        search = Search(base, tuple(offers), goal, wanted.options, wanted.tries)
        hears = None if tried is None else _about(search, tried)
        step = Step(number, claims, search, cheapest(search, stop, hears))
        found.append(step)
        if told is not None:
            told(step)
        if stop.is_set():
            break
    return tuple(found)


def _about(
    search: Search, tried: Callable[[Search, Attempt], None]
) -> Callable[[Attempt], None]:
    return lambda attempt: tried(search, attempt)


def marginal_milli(before: Step, step: Step) -> tuple[int | None, int | None, int | None]:
    """What the last team costs on top: at least, by what was found, at most.

    Equal where both steps are proven. None where it isn't known.
    """
    low, high = step.lower_milli, step.price_milli
    low_before, high_before = before.lower_milli, before.price_milli
    return (
        None if low is None or high_before is None else low - high_before,
        None if high is None or high_before is None else high - high_before,
        None if high is None or low_before is None else high - low_before,
    )
