"""The command `defrag`: which running jobs to move, and what each move buys."""

# ruff: noqa: PLC0415
# As in cli.py, nothing but Typer is imported at the top.

from __future__ import annotations

import typer

from trencadis.views import options as opt


def defrag(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    output: opt.PlanOut = None,
    policy: opt.PolicyFile = None,
    json: opt.Json = False,
) -> None:
    """Move running jobs, to let waiting ones in or to lower fragmentation."""
    from trencadis.solver.migrate.defrag import defrag as find
    from trencadis.views import io
    from trencadis.views.plan import headline, plan_view
    from trencadis.views.session import Session
    from trencadis.views.snapshots import plan_text

    io.writable(output)
    snap = Session(context).snapshot(snapshot, policy)
    plan = find(snap)
    if not snap.policy.preemption.budget.moves:
        io.tell("Nothing may move: policy.preemption.budget.moves is 0.")
    text = plan_text(plan)
    if output is not None:
        io.write(output, text)
    if output == io.STANDARD:
        io.tell(headline(plan))
    elif json:
        io.write(io.STANDARD, text)
    else:
        io.show(*plan_view(plan, snap))
