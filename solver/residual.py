"""What is left to decide once some jobs have been placed: the facts of the rest of the round."""

from __future__ import annotations

from dataclasses import replace

from trencadis.solver.accounts import Account
from trencadis.solver.ledger import Ledger, state_now
from trencadis.solver.model.problem import Facts
from trencadis.solver.targets import Target


def residual(facts: Facts, ledger: Ledger) -> Facts:
    """The facts as if the ledger's starts were running already."""
    eligible = {
        name: job for name, job in facts.values.eligible.items() if name not in ledger.started
    }
    accounts = tuple(
        Account(account.key, account.used + used, account.limit, account.asked)
        for account, used in zip(facts.books.accounts, ledger.used, strict=True)
    )
    short = (_target(facts, ledger, target) for target in facts.targets)
    return replace(
        facts,
        capacity=replace(
            facts.capacity,
            states=tuple(
                state_now(node, indices=True)
                for node in ledger.nodes.values()
                if not node.closed
            ),
        ),
        values=replace(facts.values, eligible=eligible),
        books=replace(facts.books, accounts=accounts),
        targets=tuple(target for target in short if target.missing > 0),
    )


def _target(facts: Facts, ledger: Ledger, target: Target) -> Target:
    index = facts.books.index.get(("use", target.queue, target.model))
    gained = 0 if index is None else ledger.used[index]
    return replace(target, missing=target.missing - gained)
