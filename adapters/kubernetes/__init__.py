"""What kubectl prints as JSON, or a KAI snapshot, as a snapshot."""

from trencadis.adapters.kubernetes.snapshot import read_kubernetes

__all__ = ["read_kubernetes"]
