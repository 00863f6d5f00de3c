"""Slurm's documents as a snapshot: jobs, nodes, topology, partitions, reservations, licences."""

from trencadis.adapters.slurm.snapshot import read_slurm

__all__ = ["read_slurm"]
