"""What nvidia-smi prints, as a snapshot of one node."""

from trencadis.adapters.nvidia_smi.node import read_nvidia_smi

__all__ = ["read_nvidia_smi"]
