"""A job on the nodes that an earlier round named for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trencadis.models import Job
from trencadis.solver.fabric import Domain, Tree
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.shapes import Shape, Way


def on_same_nodes(
    ledger: Ledger, job: Job, shape: Shape, nodes: Iterable[str]
) -> tuple[str | None, Bundles] | None:
    """The GPU model and the places that the job takes, in the cheapest way that describes them;
    None if none does. Limits are not looked at.

    `nodes`: one for each task. The job may ask for other domains than it did when it got them.
    """
    tasks = Counter(nodes)
    if not tasks or not tasks.keys() <= ledger.nodes.keys():
        return None
    if job.max_tasks_per_node is not None and max(tasks.values()) > job.max_tasks_per_node:
        return None
    fabric = ledger.facts.fabric
    together = fabric.common_depth(tasks)
    for alternative in sorted(shape.alternatives, key=lambda entry: entry.cost):
        way = alternative.way
        if way.depth > together or any(n % way.need.sets for n in tasks.values()):
            continue
        needs = {name: n // way.need.sets for name, n in sorted(tasks.items())}
        if sum(needs.values()) != way.count or not _in_segments(way, needs, fabric):
            continue
        bundles = [(name, way.need) for name, number in needs.items() for _ in range(number)]
        if ledger.take_all(job.name, bundles):
            return way.need.model, bundles
    return None


def _in_segments(way: Way, needs: dict[str, int], fabric: Tree) -> bool:
    """Whether the needs split into whole segments: they are interchangeable, so exactly if each
    domain has a multiple of a segment's. And whether they are far enough apart."""
    if not way.segment:
        return True
    inside = Counter[Domain]()
    for name, number in needs.items():
        inside[fabric.path[name][: way.segment_depth]] += number
    most = way.most or way.count
    return not any(number % way.segment or number > most for number in inside.values())
