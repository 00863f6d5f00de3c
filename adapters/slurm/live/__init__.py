"""A live Slurm: read by its commands or slurmrestd, steered by its commands."""

from trencadis.adapters.slurm.live.config import SlurmConfig, load_config
from trencadis.adapters.slurm.live.slurm import SlurmCluster

__all__ = ["SlurmCluster", "SlurmConfig", "load_config"]
