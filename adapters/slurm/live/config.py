"""How a Slurm cluster is to be lived with: the rules of every scheduler, and Slurm's own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from trencadis.adapters.live.config import LiveConfig, read_toml
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.models import Fault, InvalidInputError, Policy, Qos, Queue
from trencadis.models.base import ByName, Name, Positive, Record
from trencadis.models.faults import from_pydantic


class SlurmOptions(Record):
    """What only Slurm has."""

    queue_by: Literal["account", "partition"] = "account"
    """What a queue stands for."""
    tiers: ByName[Name] = Field(default_factory=dict)
    """Tier by QOS; a QOS called like a tier needs no entry."""
    partition_tiers: ByName[Name] = Field(default_factory=dict)
    """Tier by partition, for jobs whose QOS is not in `tiers`."""
    held_partitions: ByName[Name] = Field(default_factory=dict)
    """Partitions that start nothing, and where what is submitted to them runs."""
    opt_out: str = "trencadis:off"
    """Jobs with this in their comment stay their owner's: held means held."""
    signal: Annotated[str, Field(pattern=r"^[A-Z0-9]+$")] = "TERM"
    """Sent to all processes of a job when its grace begins."""
    topology_file: str | None = None
    """topology.conf; what `scontrol show topology` prints where absent."""
    slurmrestd: str | None = None
    """Read from there instead of squeue and sinfo: http://HOST:PORT or unix:/PATH."""
    token: str | None = None
    """X-SLURM-USER-TOKEN for it; the environment's SLURM_JWT where absent."""
    command_timeout_seconds: Positive = 60

    def runs_in(self, listed: list[str]) -> list[str]:
        """Where jobs that were submitted to these partitions run."""
        return [self.held_partitions.get(entry, entry) for entry in listed]


class SlurmConfig(Record):
    """All of the configuration file."""

    live: LiveConfig = LiveConfig()
    slurm: SlurmOptions = SlurmOptions()
    policy: Policy = Policy()
    queues: tuple[Queue, ...] = ()
    """Guarantees and limits, which Slurm does not tell, by account or partition."""
    qos: tuple[Qos, ...] = ()
    """Limits by QOS; what `sacctmgr show qos` tells where absent."""


def load_config(text: str) -> SlurmConfig:
    """From TOML. Raises InvalidInputError with a fault per line that makes no sense.

    `live.scope.partitions` is Slurm's word for `pools`, and nodes may be host lists.
    """
    content = read_toml(text, "partitions")
    scope: Any = content.get("live", {})
    scope = scope.get("scope") if isinstance(scope, dict) else None
    if isinstance(scope, dict):
        try:
            scope["nodes"] = [n for entry in scope.get("nodes", []) for n in expand(entry)]
        except (HostlistError, TypeError, AttributeError) as error:
            raise InvalidInputError([Fault("$.live.scope.nodes", str(error))]) from None
    try:
        config = SlurmConfig.model_validate(content)
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None
    tiers = [tier.name for tier in config.policy.tiers]
    faults = [
        Fault(f"$.slurm.{table}.{key}", f"the tiers are {', '.join(tiers)} (got {tier!r})")
        for table in ("tiers", "partition_tiers")
        for key, tier in getattr(config.slurm, table).items()
        if tier not in tiers
    ]
    if faults:
        raise InvalidInputError(faults)
    return config
