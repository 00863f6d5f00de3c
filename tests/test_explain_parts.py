"""Moves of slices against every single restart that there is."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from test_explain_properties import EXAMPLES, LEGAL, explained, sliced

from trencadis.models import MigInstance, Snapshot
from trencadis.models.check import check
from trencadis.models.explanation import Relocation, Remedy
from trencadis.models.faults import InvalidInputError
from trencadis.solver.explain.alone import Alone
from trencadis.solver.explain.changes import with_remedy


def restarts(after: Snapshot) -> Iterator[Remedy]:
    """Every restart of one slice elsewhere that input may hold."""
    gpus = [entry.gpu for node in after.nodes for entry in node.mig]
    for job in after.jobs:
        if job.state != "running":
            continue
        (task,) = job.allocation
        (instance,) = task.mig
        for gpu in gpus:
            for start in LEGAL[instance.profile]:
                there = MigInstance(profile=instance.profile, start=start)
                to = task.model_copy(update={"gpus": (gpu,), "mig": (there,)})
                if to != task:
                    move = (Relocation(job=job.name, to=(to,)),)
                    yield Remedy(kind="move", sentence="", move=move)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(sliced())
def test_one_restart_is_found_where_one_is_enough(snap: Snapshot) -> None:
    after, _, answers = explained(snap)
    alone = Alone(after)
    for answer in answers:
        one_does = False
        for remedy in restarts(after):
            changed = with_remedy(after, answer.job, remedy)
            try:
                check(changed)
            except InvalidInputError:
                continue
            one_does = one_does or alone.starts(changed, [answer.job])
        moves = [remedy.move for remedy in answer.remedies if remedy.kind == "move"]
        assert one_does == (bool(moves) and len(moves[0]) == 1)
