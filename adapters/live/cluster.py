"""What a native scheduler must offer, and what a reading of it tells of each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from trencadis.models import Fault, Snapshot, TaskAllocation
from trencadis.models.plan import Reconfigure

State = Literal["waiting", "released", "running", "leaving", "ended"]
"""`waiting`: kept back for us. `released`: pending, and the native scheduler may start it.
`leaving`: it still has its nodes, and will have left them soon."""

Terms = Mapping[str, str]
"""What of a job an action changes, by the native field's name, as it was before."""

PREFIX = "trencadis-"
"""Of the names of our reservations."""


class RefusedError(Exception):
    """The native scheduler said no; nothing has changed."""


class UnavailableError(Exception):
    """The native scheduler did not answer; whether something has changed is unknown."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the native scheduler has it."""

    name: str
    state: State
    title: str = ""
    """The name that its owner gave it."""
    managed: bool = False
    """In scope and handed to us: ours to start."""
    stoppable: bool = False
    """In scope, and able to start again after it was stopped."""
    nodes: tuple[str, ...] = ()
    gpus: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """GPU indices by node, as the native scheduler chose them; None where it doesn't tell."""
    submit: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    reason: str = ""
    """Why it waits, or how it ended."""
    rejected: bool = False
    """Waits, and would never start on the terms that it has now."""
    finished: bool = False
    """Ended of its own accord and well."""
    terms: Terms = field(default_factory=dict)
    """The fields that a start changes, as they are now."""
    changed: bool = False
    """Whether `terms` differ from what was remembered: a start's changes are still there."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that is known at one moment.

    In the snapshot the managed jobs that wait are `pending`, all others that wait are `held`;
    nodes out of scope are cordoned; jobs that must not be stopped aren't preemptible.
    """

    snapshot: Snapshot
    jobs: Mapping[str, JobView]
    warnings: Sequence[Fault] = ()
    contested: frozenset[str] = frozenset()
    """Nodes on which the native scheduler may start jobs that aren't ours."""


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """How far a node's change of its MIG layout has come."""

    node: str
    kind: Literal["reconfiguring", "reconfigured", "reconfigure-failed", "reconfigure-undone"]
    configuration: str
    reason: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """A node's layouts under their native name, and what it has with them."""

    name: str
    slices: Mapping[str, int]
    """By profile."""
    gpus: int
    """Whole ones."""


class Layouts(Protocol):
    """MIG layouts, a node at a time and by names that the native side knows.

    Each call raises RefusedError or UnavailableError.
    """

    def configuration(
        self,
        node: str,
        entries: Sequence[Reconfigure],
        slices: Mapping[str, int],
        gpus: int,
        *,
        stay: bool = False,
    ) -> Configuration:
        """One with room for so many slices by profile, and whole GPUs.

        `stay`: what the node has now will do as well, and is told without a name.
        """

    def change(self, node: str, name: str) -> None:
        """Keeps work away from the node and has it changed. Doing it twice does no harm."""

    def coming(self) -> Sequence[Configuration]:
        """What nodes will have whose change is under way, by the last reading."""

    def settle(self) -> Sequence[LayoutChange]:
        """Looks at all changes under way; nodes where it is over take work again."""


class Cluster(Protocol):
    """A native scheduler. Each call raises RefusedError or UnavailableError."""

    @property
    def layouts(self) -> Layouts | None:
        """None where it changes no MIG layouts."""

    def read(self, remembered: Mapping[str, Terms]) -> Reading:
        """The cluster now; jobs in `remembered` are read as if these were their terms."""

    def objections(self) -> list[str]:
        """Why `enforce` must not begin here, a sentence each; none if it may."""

    def alive(self) -> bool:
        """Whether the native scheduler answers."""

    def start(
        self, job: str, tasks: Sequence[TaskAllocation], view: JobView, *, reserved: bool = False
    ) -> None:
        """Lets a waiting job start on exactly the nodes of these, its tasks.

        And on their GPUs, where these are ours to choose. `reserved`: nodes are reserved for it,
        which is ended once it has begun, or can't begin. Doing it twice does no harm.
        """

    def withdraw(self, job: str, terms: Terms) -> None:
        """Keeps a job that hasn't started back again, on its old terms."""

    def restore(self, job: str, terms: Terms) -> None:
        """Gives a waiting job its old terms."""

    def warn(self, job: str) -> None:
        """Sends a running job the signal that its grace begins."""

    def stop(self, job: str) -> None:
        """Ends a run so that the job waits again, kept back for us."""

    def give_back(self, job: str, terms: Terms) -> None:
        """Leaves a waiting job to the native scheduler, on its old terms."""

    def reserve(
        self, name: str, job: str, nodes: Sequence[str], start: datetime, end: datetime
    ) -> None:
        """Keeps whole nodes for one job from an instant on. Doing it twice does no harm.

        Until `end` at most: nodes must not be kept for ever by who is gone.
        """

    def unreserve(self, name: str) -> None:
        """Ends a reservation of ours; a job inside goes on. One that isn't there is no fault."""

    def reservations(self) -> list[str]:
        """The names of the reservations that are ours."""
