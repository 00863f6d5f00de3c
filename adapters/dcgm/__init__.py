"""What dcgm-exporter measured, as advice: which jobs would fit a part of a GPU."""

from trencadis.adapters.dcgm.fitting import Advice, advise
from trencadis.adapters.dcgm.samples import Usage, read_samples

__all__ = ["Advice", "Usage", "advise", "read_samples"]
