"""A live Kubernetes: read and steered through its API server."""

from trencadis.adapters.kubernetes.live.config import KubernetesConfig, load_config
from trencadis.adapters.kubernetes.live.kube import KubernetesCluster
from trencadis.adapters.kubernetes.live.written import written

__all__ = ["KubernetesCluster", "KubernetesConfig", "load_config", "written"]
