"""Solves a round again where its starts would delay what it reserves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trencadis.solver.model.problem import Facts, with_kept
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.report import Round, seat_all
from trencadis.solver.reserve.book import promised, reserve

PASSES = 3
"""Reservations follow from who starts, and who starts from reservations."""


def with_reservations(
    read: Facts, first_read: Facts, outcome: Round, again: Callable[[Facts], Round]
) -> tuple[Facts, Round]:
    """The facts with the round's reservations, and the round that respects them.

    `read`: the facts without any; `first_read`: those of the round, with what is due. `again`
    solves under other facts. The first round stays where nothing in it is in the way of
    what it reserves: it is the best with the reservations as well. Where reservations and starts
    don't settle, it stays without any.
    """
    if not read.snapshot.policy.reservations:
        return first_read, outcome
    first, before = outcome, promised(read)
    nodes = {node.name: node for node in read.snapshot.nodes}
    due = first_read.kept
    asked = due
    for _ in range(PASSES):
        relieved = outcome.relieved
        exchange = Exchange() if relieved is None else relieved.exchange
        ledger = outcome.ledger if relieved is None else relieved.ledger
        later = first_read if relieved is None else relieved.facts
        placements = seat_all(later, ledger, nodes)
        kept = reserve(read, exchange, placements, before).after(due)
        if kept.reservations == asked.reservations:
            return (first_read if asked is due else with_kept(read, kept)), outcome
        in_the_way = any(
            kept.bars(placed.job) & kept.on(task.node)
            for placed in placements.values()
            for task in placed.tasks
        )
        if asked is due and not in_the_way:
            return replace(first_read, kept=kept), outcome
        asked = kept
        before = before | {entry.job: entry for entry in kept.reservations}
        outcome = again(with_kept(read, kept)) if kept.planned() else first
    return first_read, first
