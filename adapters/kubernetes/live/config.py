"""How a Kubernetes cluster is to be lived with: the rules of every scheduler, and its own."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ValidationError

from trencadis.adapters.live.config import LiveConfig, read_toml
from trencadis.models import InvalidInputError, Policy, Queue
from trencadis.models.base import Name, Positive, Record
from trencadis.models.faults import from_pydantic

GATE = "trencadis.io/placement"


def _namespaced(value: str) -> str:
    """A namespace and a name."""
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", value):
        raise ValueError("a namespace and a name are written NAMESPACE/NAME")
    return value


class KubernetesOptions(Record):
    """What only Kubernetes has."""

    kubeconfig: str | None = None
    """The file; where absent $KUBECONFIG, ~/.kube/config, or the pod's service account."""
    context: str | None = None
    """A context of it; the current one where absent."""
    gate: Name = GATE
    """The scheduling gate of pods that wait for us."""
    opt_out: str = "trencadis.io/off"
    """Pods with this annotation, or whose owner has it, stay gated until somebody else acts."""
    levels: tuple[str, ...] = ()
    """Node labels of the fabric, widest first; found out where empty."""
    gangs: Literal["owner", "group"] = "owner"
    """Whether the pods of one Job start together (`owner`), or only those of a PodGroup."""
    evict_bare_pods: bool = False
    """Whether pods that no controller makes again may be evicted."""
    native_preemption: Literal["refuse", "allow"] = "refuse"
    """Whether `enforce` is refused where PriorityClasses or Kueue preempt by themselves."""
    kai_scheduler: str = "kai-scheduler"
    """`schedulerName` of the pods that KAI's binder binds where we say."""
    mig_configs: Annotated[str, AfterValidator(_namespaced)] | None = None
    """Namespace and name of the ConfigMap with mig-manager's configurations, such as
    `gpu-operator/default-mig-parted-config`; MIG layouts stay as they are where absent."""
    mig_timeout_seconds: Positive = 300
    """For so long mig-manager is waited for to begin with one."""
    pods_timeout_seconds: Positive = 10
    """For so long the pods of a resumed owner are waited for."""
    request_timeout_seconds: Positive = 30


class KubernetesConfig(Record):
    """All of the configuration file."""

    live: LiveConfig = LiveConfig()
    kubernetes: KubernetesOptions = KubernetesOptions()
    policy: Policy | None = None
    """Tiers are the PriorityClasses where absent."""
    queues: tuple[Queue, ...] = ()
    """Instead of those read under the same name: a namespace, or a queue of Kueue or Volcano."""


def load_config(text: str) -> KubernetesConfig:
    """From TOML. Raises InvalidInputError with a fault per line that makes no sense.

    `live.scope.namespaces` is Kubernetes' word for `pools`.
    """
    try:
        return KubernetesConfig.model_validate(read_toml(text, "namespaces"))
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None
