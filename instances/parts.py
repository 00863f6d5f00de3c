"""Nodes of a synthetic cluster with GPUs in parts, and the jobs that run and wait for these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

from trencadis.instances.mix import GIB, Wheel
from trencadis.models import Job, MigGpu, MigInstance, Node, Request, Share, TaskAllocation
from trencadis.models.mig import MigProfile, MigTable, find_table

# Compute slices and memory slices of a profile -> how common.
PROFILES = {(1, 1): 46, (2, 2): 22, (3, 4): 18, (1, 2): 6, (4, 4): 5, (7, 8): 3}
# Milli-GPU and GiB of a share -> how common.
SHARES = {(500, 40): 30, (250, 20): 40, (200, 10): 15, (100, 8): 15}
JOBS_PER_GPU = 8
CPUS_PER_PART = (1, 2, 4)
GANG_FRACTION = 0.1
"""Part of the jobs on slices that have several tasks."""


class Parts:
    """Which nodes are cut and which are shared; draws what runs and waits there."""

    def __init__(
        self, seed: int, nodes: Sequence[Node], mig: float, share: float, load: float
    ) -> None:
        # A stream of its own: clusters without parts stay as they were.
        self.rng = random.Random(f"parts of {seed}")
        self.mig, self.share, self.load = mig, share, load
        order = list(range(len(nodes)))
        self.rng.shuffle(order)
        cut = round(len(nodes) * mig)
        self.cut = frozenset(order[:cut])
        self.shared = frozenset(order[cut : cut + round(len(nodes) * share)])
        self.tables: dict[str, MigTable] = {}
        for node in nodes:
            for group in node.gpus:
                table = find_table(group.model, group.memory_mib)
                if table is not None:
                    self.tables[group.model] = table
        self.profiles = Wheel.of(PROFILES)
        self.shares = Wheel.of(SHARES)

    @property
    def apart(self) -> frozenset[int]:
        """Nodes on which no whole GPUs are in use."""
        return self.cut | self.shared

    def nodes(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """The nodes with MIG on, or open to shares."""
        made = []
        for number, node in enumerate(nodes):
            if number in self.cut:
                mig = tuple(MigGpu(gpu=gpu) for gpu in node.healthy_gpus())
                made.append(node.model_copy(update={"mig": mig}))
            elif number in self.shared:
                update = {"shareable": True, "max_jobs_per_gpu": JOBS_PER_GPU}
                made.append(node.model_copy(update=update))
            else:
                made.append(node)
        return tuple(made)

    def running(
        self, nodes: Sequence[Node], like: Sequence[Job]
    ) -> tuple[tuple[Node, ...], list[Job]]:
        """Nodes with their instances, and the jobs on them: `load` of each GPU on average, a few
        instances idle. `like`: running jobs whose queue, user, tier and times are copied."""
        rng = self.rng
        jobs: list[Job] = []
        made = list(nodes)
        patterns = list(like)
        for number in sorted(self.cut):
            node = made[number]
            if node.cordoned or not patterns:
                continue
            layouts = []
            for entry in node.mig:
                table = self.tables[node.healthy_gpus()[entry.gpu]]
                instances = self._layout(table)
                layouts.append(MigGpu(gpu=entry.gpu, instances=instances))
                for instance in instances:
                    if rng.random() < 0.9:
                        where = TaskAllocation(
                            node=node.name, gpus=(entry.gpu,), mig=(instance,)
                        )
                        request = self._beside(mig=(instance.profile,))
                        jobs.append(self._job(len(jobs), rng.choice(patterns), request, where))
            made[number] = node.model_copy(update={"mig": tuple(layouts)})
        for number in sorted(self.shared):
            node = made[number]
            if node.cordoned or not patterns:
                continue
            for gpu in node.healthy_gpus():
                milli, memory = 0, 0
                while milli < 1_000 * self.load * rng.uniform(0.2, 1.4):
                    wanted, gib = self.shares.draw(rng)
                    if milli + wanted > 1_000 or memory + gib > 80:
                        break
                    milli, memory = milli + wanted, memory + gib
                    share = Share(gpu_milli=wanted, memory_mib=gib * GIB)
                    where = TaskAllocation(node=node.name, gpus=(gpu,), share=share)
                    request = self._beside(share=share)
                    jobs.append(self._job(len(jobs), rng.choice(patterns), request, where))
        return tuple(made), jobs

    def pending(self, jobs: Sequence[Job]) -> list[Job]:
        """The pending jobs, some of which ask for slices and shares instead of one whole GPU."""
        made = []
        for job in jobs:
            chance = self.rng.random()
            if job.tasks > 1 or chance >= self.mig + self.share:
                made.append(job)
                continue
            tasks = 1
            if chance < self.mig:
                request = self._beside(mig=(self._profile().name,))
                if self.rng.random() < GANG_FRACTION:
                    tasks = self.rng.choice((2, 4))
            else:
                milli, gib = self.shares.draw(self.rng)
                share = Share(gpu_milli=milli, memory_mib=gib * GIB)
                request = self._beside(share=share)
            update = {"request": request, "gpu_models": (), "tasks": tasks, "communicates": False}
            made.append(job.model_copy(update=update))
        return made

    def _profile(self) -> MigProfile:
        table = self.tables[min(self.tables)]
        size = self.profiles.draw(self.rng)
        return next(
            profile
            for profile in table.profiles
            if profile.plain and (profile.compute_slices, profile.memory_slices) == size
        )

    def _layout(self, table: MigTable) -> tuple[MigInstance, ...]:
        """Instances put one by one at random legal starts until the GPU is loaded."""
        taken = used = 0
        layout: list[MigInstance] = []
        goal = table.compute_slices * min(1.0, self.load * self.rng.uniform(0.2, 1.6))
        for _ in range(8):
            profile = self._profile()
            if used + profile.compute_slices > goal:
                continue
            bits = (1 << profile.memory_slices) - 1
            starts = [start for start in profile.starts if not taken & bits << start]
            number = sum(instance.profile == profile.name for instance in layout)
            if starts and number < profile.most:
                start = self.rng.choice(starts)
                taken |= bits << start
                used += profile.compute_slices
                layout.append(MigInstance(profile=profile.name, start=start))
        return tuple(sorted(layout, key=lambda instance: instance.start))

    def _beside(self, mig: tuple[str, ...] = (), share: Share | None = None) -> Request:
        """A part of a GPU with CPUs and memory."""
        cpus = self.rng.choice(CPUS_PER_PART)
        return Request(
            mig=mig, share=share, cpu_milli=cpus * 1_000, memory_mib=cpus * 4 * GIB
        )

    def _job(self, number: int, like: Job, request: Request, where: TaskAllocation) -> Job:
        elapsed = self.rng.randrange(60, 80_000)
        assert like.start is not None
        start = like.start - timedelta(seconds=elapsed % 600)
        return Job(
            name=f"part-{number:06d}",
            queue=like.queue,
            user=like.user,
            priority=like.priority,
            request=request,
            communicates=False,
            submit=min(like.submit, start),
            start=start,
            runtime_seconds=like.runtime_seconds,
            state="running",
            allocation=(where,),
        )
