"""What a cluster, a job, a queue, a policy and a plan are. No solver."""

from trencadis.models.apply import apply
from trencadis.models.base import SCHEMA_VERSION
from trencadis.models.broken import Missing
from trencadis.models.cluster import (
    Fabric,
    FabricLevel,
    GpuGroup,
    Licence,
    MigGpu,
    MigInstance,
    Node,
    NvLink,
    Taint,
    Window,
)
from trencadis.models.delta import Delta, change
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.jobs import (
    ArrayRef,
    Checkpoint,
    DomainCap,
    Hold,
    Job,
    Request,
    Segments,
    Share,
    TaskAllocation,
    Toleration,
    Topology,
)
from trencadis.models.layouts import PlanMismatchError
from trencadis.models.load import load_mig_tables, load_plan, load_policy, load_snapshot
from trencadis.models.plan import (
    Metrics,
    Move,
    Pending,
    Plan,
    Proof,
    Repair,
    StageProof,
    Start,
    Status,
)
from trencadis.models.policy import DemandEntry, Policy, Preemption, Spare, Tier
from trencadis.models.queues import Limits, Qos, Queue, Quota
from trencadis.models.snapshot import Snapshot

__all__ = [
    "SCHEMA_VERSION",
    "ArrayRef",
    "Checkpoint",
    "Delta",
    "DemandEntry",
    "DomainCap",
    "Fabric",
    "FabricLevel",
    "Fault",
    "GpuGroup",
    "Hold",
    "InvalidInputError",
    "Job",
    "Licence",
    "Limits",
    "Metrics",
    "MigGpu",
    "MigInstance",
    "Missing",
    "Move",
    "Node",
    "NvLink",
    "Pending",
    "Plan",
    "PlanMismatchError",
    "Policy",
    "Preemption",
    "Proof",
    "Qos",
    "Queue",
    "Quota",
    "Repair",
    "Request",
    "Segments",
    "Share",
    "Snapshot",
    "Spare",
    "StageProof",
    "Start",
    "Status",
    "Taint",
    "TaskAllocation",
    "Tier",
    "Toleration",
    "Topology",
    "Window",
    "apply",
    "change",
    "load_mig_tables",
    "load_plan",
    "load_policy",
    "load_snapshot",
]
