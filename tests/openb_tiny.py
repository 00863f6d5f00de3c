"""Small clusters and traces for the tests of the openb benchmark."""

from __future__ import annotations

import random

from openb_lab.workload import Workload, workload

from trencadis.instances.openb_csv import NodeRow, PodRow


def pod(
    name: str, gpus: int, milli: int, cpu: int, memory: int = 1, models: tuple[str, ...] = ()
) -> PodRow:
    """A row of a pod table."""
    return PodRow(name, cpu, memory, gpus, milli, models, "", None, None)


def tiny(seed: int, nodes: int = 5, pods: int = 60) -> Workload:
    """Nodes with 0 to 8 GPUs, short of CPU here and there; shares, whole GPUs, pods without."""
    rng = random.Random(seed)
    rows = [
        NodeRow(
            f"n{i}",
            rng.choice((8_000, 24_000, 64_000)),
            rng.choice((50, 1_000)),
            rng.choice((1, 2, 4, 8)),
            rng.choice(("T4", "G2")),
        )
        for i in range(nodes)
    ]
    asked = [
        (0, 0),
        (1, 110),
        (1, 320),
        (1, 470),
        (1, 810),
        (1, 1_000),
        (1, 1_000),
        (2, 1_000),
        (4, 1_000),
    ]
    table = []
    for i in range(pods):
        gpus, milli = rng.choice(asked)
        models = rng.choice(((), (), (), ("T4",), ("G2", "T4"))) if gpus else ()
        cpu = rng.choice((1_000, 3_152, 8_000, 11_908))
        table.append(pod(f"p{i}", gpus, milli, cpu, rng.choice((1, 20)), models))
    return workload(rows, table)
