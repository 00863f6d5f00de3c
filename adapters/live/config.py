"""How to live with a native scheduler: mode, scope, spans of time, hooks."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any, Literal

from pydantic import Field

from trencadis.models import Fault, InvalidInputError
from trencadis.models.base import Count, Name, Positive, Record

Mode = Literal["shadow", "recommend", "enforce"]


class Scope(Record):
    """What is ours. Everything else is seen, counted and left alone."""

    pools: tuple[Name, ...] = ()
    """Partitions or namespaces whose jobs are ours to start; all where empty."""
    nodes: tuple[Name, ...] = ()
    """Nodes that jobs are started on, and stopped on; all where empty."""

    def has_pools(self, pools: list[str]) -> bool:
        """Whether a job that may use these pools is ours."""
        return bool(pools) and (not self.pools or set(pools) <= set(self.pools))

    def has_node(self, node: str) -> bool:
        """Whether work may be started and stopped on the node."""
        return not self.nodes or node in self.nodes


class Hook(Record):
    """Who is told before a job is stopped. It gets one JSON object, and may answer with one.

    An answer `{"ack": true}` says that the job is ready to be stopped: its grace ends at once.
    """

    command: tuple[str, ...] = ()
    """A program with arguments; the object comes on stdin."""
    webhook: str | None = None
    """A URL that the object is posted to."""
    timeout_seconds: Positive = 10
    required: bool = False
    """A job is stopped only if the hook could be told."""


class LiveConfig(Record):
    """The rules that are the same for every native scheduler."""

    mode: Mode = "shadow"
    interval_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """From the beginning of one round to that of the next."""
    time_limit_seconds: Annotated[float, Field(gt=0)] | None = None
    """For a round's solve; half the interval where absent, at most the policy's."""
    seed: Count = 0
    scope: Scope = Scope()
    start_timeout_seconds: Positive = 120
    """A start that isn't whole by then is taken back."""
    retry_after_seconds: Count = 300
    """For so long a job isn't offered again what the native scheduler refused it."""
    missed_rounds: Positive = 5
    """After so many rounds without one that ended well the watchdog gives all jobs back."""
    hook: Hook = Hook()
    reserve_planned: Literal["where_needed", "always", "never"] = "where_needed"
    """Whether the native scheduler is told of nodes that a plan keeps for a job to come
    (`policy.reservations`): where jobs that aren't ours could start on them, always, or never."""
    reserve_delayed: bool = False
    """Whether nodes that a start waits for are reserved while their jobs leave. Needed where jobs
    that aren't ours may take them."""


def read_toml(text: str, pools: str) -> dict[str, Any]:
    """A configuration file. `pools` is the native scheduler's word for the scope's pools.

    Raises InvalidInputError where it isn't TOML.
    """
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise InvalidInputError([Fault("$", f"Invalid TOML: {error}")]) from None
    live = content.get("live")
    scope = live.get("scope") if isinstance(live, dict) else None
    if isinstance(scope, dict) and pools in scope:
        scope["pools"] = scope.pop(pools)
    return content
