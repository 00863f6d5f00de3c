"""What Kubernetes objects mean in the schema, one rule at a time."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kube_docs import NOW, Doc, listing, node, pod, read, thing

from trencadis.adapters.kubernetes import read_kubernetes
from trencadis.adapters.kubernetes.fields import duration, quantity
from trencadis.adapters.kubernetes.resources import pod_amounts
from trencadis.models import InvalidInputError
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

KUEUE = "kueue.x-k8s.io/v1beta2"
VOLCANO = "scheduling.volcano.sh/v1beta1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100m", Fraction(1, 10)),
        ("1Ti", 2**40),
        ("1.5Gi", 3 * 2**29),
        ("2e3", 2000),
        ("1E", 10**18),
        ("12E-1", Fraction(12, 10)),
        (7, 7),
        ("", None),
        ("1Zi", None),
        ("NaN", None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_quantities(text: Any, value: Any) -> None:
    assert quantity(text) == value


@given(st.integers(0, 10**9))
def test_a_quantity_is_the_same_in_every_unit(value: int) -> None:
    assert quantity(f"{value}k") == quantity(value * 1000) == quantity(f"{value * 10**6}m")


def test_durations() -> None:
    assert (duration("10m0s"), duration("1h30m"), duration("1.5s"), duration("5")) == (
        600,
        5400,
        2,
        None,
    )


def _container(**requests: str) -> Doc:
    return {"resources": {"requests": requests}}


def test_a_pod_asks_for_what_the_scheduler_counts() -> None:
    spec = {
        "containers": [_container(cpu="1"), _container(cpu="2", memory="1Gi")],
        "initContainers": [
            _container(cpu="2", memory="5Gi"),
            _container(cpu="500m") | {"restartPolicy": "Always"},
            _container(cpu="4"),
        ],
        "overhead": {"cpu": "100m"},
    }
    # The sidecar runs on beside the containers and beside the last init container.
    assert pod_amounts(spec) == {"cpu": Fraction(46, 10), "memory": 5 * 2**30}
    spec["resources"] = {"requests": {"cpu": "3"}}
    assert pod_amounts(spec)["cpu"] == Fraction(31, 10)


def test_a_limit_is_the_request_where_there_is_none() -> None:
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    assert pod_amounts(spec) == {"nvidia.com/gpu": 2}


def test_nodes_and_pods() -> None:
    found = read(node("a"), node("b", gpus=0), pod("run", 4, on="a"), pod("wait", 2))
    a = found.nodes["a"]
    assert (a.gpu_count, a.gpus[0].model, a.gpus[0].memory_mib) == (
        8,
        "NVIDIA-H100-80GB-HBM3",
        81559,
    )
    assert (a.cpu_milli, a.memory_mib, a.resources["pods"], a.precision) == (
        96_000,
        2**20,
        110,
        "node",
    )
    run, wait = found.jobs["ml/run"], found.jobs["ml/wait"]
    assert (run.state, run.request.gpus, run.allocation[0].node) == ("running", 4, "a")
    assert (wait.state, wait.request.gpus, wait.request.cpu_milli) == ("pending", 2, 4_000)
    assert found.pods["ml/wait"][0].uid == "uid-wait"
    assert not run.requeueable  # nobody makes a bare pod again


def test_what_is_over_is_no_job_and_what_is_deleted_drains() -> None:
    found = read(
        node("a"),
        pod("done", status={"phase": "Succeeded"}),
        pod("bad", on="a", status={"phase": "Failed"}),
        pod("going", on="a", metadata={"deletionTimestamp": "2026-03-01T12:00:30Z"}),
        pod("gone", metadata={"deletionTimestamp": "2026-03-01T12:00:30Z"}),
    )
    assert {name: job.state for name, job in found.jobs.items()} == {"ml/going": "draining"}
    assert found.jobs["ml/going"].drain_ends is not None


def test_pods_of_daemon_sets_shrink_their_node() -> None:
    owner = {
        "metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}
    }
    found = read(node("a"), pod("agent", 0, on="a", **owner))
    assert found.jobs == {}
    assert found.nodes["a"].cpu_milli == 92_000
    assert found.nodes["a"].resources["pods"] == 109


def test_cordons_taints_and_readiness() -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    lost = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    found = read(
        node("a", spec={"unschedulable": True, "taints": taints}),
        node("b", status=lost),
        node("c", status=lost),
        pod("p", on="c"),
    )
    assert found.nodes["a"].cordoned
    assert found.nodes["a"].taints[0].key == "gpu"
    assert (found.nodes["b"].down, found.nodes["c"].down, found.nodes["c"].cordoned) == (
        True,
        False,
        True,
    )


def test_a_node_without_essentials_is_reported() -> None:
    broken = node("a")
    del broken["status"]["allocatable"]["cpu"]
    with pytest.raises(InvalidInputError) as caught:
        read(broken)
    assert "list:$.items[0].status.allocatable.cpu: node a" in str(caught.value)


def test_fewer_allocatable_gpus_than_installed_are_broken_ones() -> None:
    found = read(node("a", status={"allocatable": {"nvidia.com/gpu": "6"}}))
    assert found.nodes["a"].gpus[0].unhealthy == (6, 7)


def test_affinity_is_judged_on_the_nodes() -> None:
    def affinity(*expressions: Doc) -> Doc:
        terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        return {"affinity": {"nodeAffinity": required}}

    zone = {"key": "zone", "operator": "In", "values": ["z1", "z2"]}
    not_b = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["b"]}
    new = {"key": "gen", "operator": "Gt", "values": ["3"]}
    found = read(
        node("a", labels={"zone": "z1", "gen": "4"}),
        node("b", labels={"zone": "z2", "gen": "3"}),
        node("c", labels={"zone": "z3"}),
        pod("p", spec=affinity(zone)),
        pod("q", spec=affinity(zone, not_b)),
        pod("r", spec=affinity(new)),
        pod("s", spec={"nodeSelector": {"zone": "z3"}}),
        pod("t", spec=affinity({"key": "gen", "operator": "DoesNotExist"})),
    )
    where = {name[-1]: found.may_run_on(name) for name in found.jobs}
    assert where == {"p": {"a", "b"}, "q": {"a"}, "r": {"a"}, "s": {"c"}, "t": {"c"}}


def test_what_the_schema_cant_say_is_held() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found = read(
        node("a"),
        pod("near", spec={"affinity": {"podAffinity": {required: [term]}}}),
        pod("gated", spec={"schedulingGates": [{"name": "someone.else/gate"}]}),
        pod("ours", spec={"schedulingGates": [{"name": "our/gate"}]}),
        gates=["our/gate"],
    )
    states = {name: job.state for name, job in found.jobs.items()}
    assert states == {"ml/near": "held", "ml/gated": "held", "ml/ours": "pending"}
    assert found.warned("pod affinity")
    assert found.warned("gate")


def test_priority_classes_become_tiers_in_their_order() -> None:
    found = read(
        node("a"),
        thing("PriorityClass", "urgent", "scheduling.k8s.io/v1", value=1000),
        thing("PriorityClass", "batch", "scheduling.k8s.io/v1", value=10, globalDefault=True),
        pod("p", spec={"priorityClassName": "urgent"}),
        pod("q"),
        pod("r", spec={"priority": -5}),
    )
    assert [tier.name for tier in found.snapshot.policy.tiers] == ["urgent", "batch", "priority--5"]
    assert [found.jobs[f"ml/{name}"].priority for name in "pqr"] == [
        "urgent",
        "batch",
        "priority--5",
    ]
    assert found.snapshot.policy.default_tier == "batch"


def test_a_disruption_budget_protects() -> None:
    selector = {"matchLabels": {"app": "x"}}
    labels = {"metadata": {"labels": {"app": "x"}}}
    budget = thing("PodDisruptionBudget", "b", "policy/v1", metadata={"namespace": "ml"})
    for allowed, expected in ((0, False), (1, True)):
        found = read(
            node("a"),
            pod("p", on="a", **labels),
            budget | {"spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}},
        )
        assert found.jobs["ml/p"].preemptible is expected


# Volcano


def _member(name: str, group: str, on: str = "", gpus: int = 8) -> Doc:
    return pod(name, gpus, on, metadata={"annotations": {"scheduling.k8s.io/group-name": group}})


def _group(name: str, minimum: int, **spec: Any) -> Doc:
    made = thing("PodGroup", name, VOLCANO, metadata={"namespace": "ml"})
    return made | {"spec": {"minMember": minimum, "queue": "q", **spec}}


def test_a_pod_group_is_a_gang_with_its_minimum() -> None:
    pods = [_member(f"w{i}", "g") for i in range(4)]
    found = read(node("a"), _group("g", 3), *pods)
    job = found.jobs["ml/g"]
    assert (job.tasks, job.minimum, job.queue) == (4, 3, "q")
    assert len(found.pods["ml/g"]) == 4


def test_beyond_its_minimum_each_pod_starts_alone() -> None:
    found = read(node("a"), _group("g", 1), _member("w0", "g", "a"), _member("w1", "g"))
    assert found.jobs["ml/g"].state == "running"
    assert found.jobs["ml/g/w1"].tasks == 1


def test_a_gang_short_of_its_minimum_waits_for_the_rest_together() -> None:
    found = read(
        node("a", gpus=64),
        _group("g", 3),
        _member("w0", "g", "a"),
        _member("w1", "g"),
        _member("w2", "g"),
    )
    waiting = [job for job in found.jobs.values() if job.state == "pending"]
    assert [(job.tasks, job.minimum) for job in waiting] == [(2, 2)]
    # All three of them wait as long as these two do.
    assert waiting[0].weight_milli == 1_500


def test_further_pods_of_a_gang_that_runs_weigh_no_more() -> None:
    found = read(node("a", gpus=64), _group("g", 1), _member("w0", "g", "a"), _member("w1", "g"))
    assert found.jobs["ml/g/w1"].weight_milli == 1_000


def test_a_gang_without_all_its_pods_is_held() -> None:
    found = read(node("a"), _group("g", 3), _member("w0", "g"))
    assert found.jobs["ml/g"].state == "held"


def test_different_pods_of_a_gang_start_together() -> None:
    found = read(
        node("a", gpus=64),
        _group("g", 3),
        _member("m", "g", gpus=1),
        _member("w0", "g"),
        _member("w1", "g"),
    )
    assert {job.group for job in found.jobs.values()} == {"ml/g"}
    assert sorted(job.tasks for job in found.jobs.values()) == [1, 2]


def _hyper(name: str, tier: int, *members: str, kind: str = "Node") -> Doc:
    selectors = [{"type": kind, "selector": {"exactMatch": {"name": m}}} for m in members]
    made = thing("HyperNode", name, "topology.volcano.sh/v1alpha1")
    return made | {"spec": {"tier": tier, "members": selectors}}


def test_hyper_nodes_are_levels() -> None:
    tree = [
        _hyper("s0", 1, "a", "b"),
        _hyper("s1", 1, "c"),
        _hyper("top", 2, "s0", "s1", kind="HyperNode"),
    ]
    group = _group("g", 2, networkTopology={"mode": "hard", "highestTierAllowed": 1})
    found = read(*(node(n) for n in "abcd"), *tree, group, _member("w0", "g"), _member("w1", "g"))
    assert [level.name for level in found.snapshot.fabric.levels] == ["tier-2", "tier-1"]
    assert found.nodes["b"].fabric == ("top", "s0")
    assert found.nodes["c"].fabric == ("top", "s1")
    assert found.nodes["d"].fabric == ()
    topology = found.jobs["ml/g"].topology
    assert topology is not None
    assert (topology.level, topology.mode) == ("tier-1", "required")


def test_volcano_queues() -> None:
    def queue(name: str, **spec: Any) -> Doc:
        return thing("Queue", name, VOLCANO) | {"spec": spec}

    found = read(
        node("a"),
        queue("q", weight=3, parent="root", deserved={"nvidia.com/gpu": "16"},
              guarantee={"resource": {"nvidia.com/gpu": "8"}}, capability={"nvidia.com/gpu": "32"}),
        queue("keep", reclaimable=False),
        _group("g", 1, queue="keep"),
        _member("w", "g", "a"),
    )  # fmt: skip
    made = found.queues["q"]
    assert (made.weight, made.parent, made.guarantee.gpus, made.limit.quota.gpus) == (
        3,
        None,
        16,
        32,
    )
    assert made.lending_limit is not None
    assert made.lending_limit.gpus == 8
    assert not found.jobs["ml/g"].preemptible


# Kueue


def _cluster_queue(name: str, nominal: int, flavors: int = 1, **resource: Any) -> Doc:
    rows = [
        {
            "name": f"f{i}",
            "resources": [{"name": "nvidia.com/gpu", "nominalQuota": nominal, **resource}],
        }
        for i in range(flavors)
    ]
    spec = {
        "cohortName": "all",
        "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": rows}],
    }
    return thing("ClusterQueue", name, KUEUE) | {"spec": spec}


def _flavor(name: str, pool: str) -> Doc:
    return thing("ResourceFlavor", name, KUEUE) | {"spec": {"nodeLabels": {"pool": pool}}}


def _local(name: str, target: str) -> Doc:
    made = thing("LocalQueue", name, KUEUE, metadata={"namespace": "ml"})
    return made | {"spec": {"clusterQueue": target}}


def _workload(name: str, count: int, **more: Any) -> Doc:
    containers = [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]
    row = {"name": "main", "count": count, "template": {"spec": {"containers": containers}}}
    made = thing("Workload", name, KUEUE, metadata={"namespace": "ml"})
    return made | {"spec": {"queueName": "lq", "podSets": [row | more.pop("row", {})]}} | more


def test_kueue_queues_and_flavors() -> None:
    found = read(
        node("a", labels={"pool": "p0"}),
        node("b", labels={"pool": "p1"}),
        node("c", labels={"pool": "p2"}),
        _flavor("f0", "p0"),
        _flavor("f1", "p1"),
        _cluster_queue("cq", 16, flavors=2, borrowingLimit=4, lendingLimit=2),
        _local("lq", "cq"),
        _workload("w", 2),
    )
    queue = found.queues["cq"]
    assert (queue.parent, queue.guarantee.gpus, queue.limit.quota.gpus) == ("cohort/all", 32, 40)
    assert queue.lending_limit is not None
    assert queue.lending_limit.gpus == 4
    assert found.jobs["ml/w"].queue == "cq"
    assert found.may_run_on("ml/w") == {"a", "b"}


def test_a_workload_and_its_pods_are_one_job() -> None:
    owner = {"kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    own = {"ownerReferences": [owner], "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    workload = _workload("job-j", 2, status={"admission": {"clusterQueue": "cq"}})
    workload["metadata"]["ownerReferences"] = [owner]
    found = read(
        node("a"), node("b"), _flavor("f0", "x"), _cluster_queue("cq", 16), _local("lq", "cq"),
        workload,
        thing("Job", "j", "batch/v1", metadata={"namespace": "ml", "uid": "uid-j"}, spec={}),
        pod("j-0", 8, on="a", metadata=own), pod("j-1", 8, on="b", metadata=own),
    )  # fmt: skip
    assert set(found.jobs) == {"ml/job-j"}
    assert found.jobs["ml/job-j"].tasks == 2
    assert {task.node for task in found.jobs["ml/job-j"].allocation} == {"a", "b"}


def test_inactive_and_finished_workloads() -> None:
    over = {"conditions": [{"type": "Finished", "status": "True"}]}
    idle = _workload("idle", 1)
    idle["spec"]["active"] = False
    found = read(node("a"), idle, _workload("over", 1, status=over))
    assert {name: job.state for name, job in found.jobs.items()} == {"ml/idle": "held"}


def test_topologies_and_slices() -> None:
    levels = [{"nodeLabel": key} for key in ("block", "rack", "kubernetes.io/hostname")]
    topology = thing("Topology", "t", KUEUE) | {"spec": {"levels": levels}}
    wish = {"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    found = read(*nodes, topology, _workload("w", 4, row={"topologyRequest": wish}))
    job = found.jobs["ml/w"]
    assert job.topology is not None
    assert job.segments is not None
    assert (job.topology.level, job.segments.level, job.segments.tasks) == ("block", "rack", 2)
    plan = solve(found.snapshot, Options(workers=1))
    assert verify(found.snapshot, plan).violations == ()
    assert [start.job for start in plan.starts] == ["ml/w"]


def test_labels_of_topograph_are_levels() -> None:
    labels = [
        {f"fabric.topograph.run/tier-{t}": f"s{t}" for t in (0, 1)}
        | {"accelerator.topograph.run/domain": f"nvl{i}"}
        for i in range(2)
    ]
    found = read(node("a", labels=labels[0]), node("b", labels=labels[1]))
    kinds = [(level.name.rpartition("/")[2], level.kind) for level in found.snapshot.fabric.levels]
    assert kinds == [("tier-1", "spine"), ("tier-0", "leaf"), ("domain", "nvl72")]
    assert found.nodes["b"].fabric == ("s1", "s0", "nvl1")


# Slices and shares


def test_slices_are_placed_at_legal_starts() -> None:
    offered = {"nvidia.com/gpu": "1", "nvidia.com/mig-3g.40gb": "2", "nvidia.com/mig-1g.10gb": "3"}
    labels = {"nvidia.com/gpu.count": "3", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    found = read(
        node("a", 0, labels | {"nvidia.com/gpu.memory": "81559"},
             status={"allocatable": offered, "capacity": offered}),
        pod("p", 0, on="a", spec={"containers": [_container(**{"nvidia.com/mig-1g.10gb": "1"})]}),
    )  # fmt: skip
    mig = {
        entry.gpu: [(i.profile, i.start) for i in entry.instances] for entry in found.nodes["a"].mig
    }
    assert mig == {
        1: [("3g.40gb", 0), ("3g.40gb", 4)],
        2: [("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 2)],
    }
    (task,) = found.jobs["ml/p"].allocation
    assert (task.gpus, task.mig[0].profile) == ((2,), "1g.10gb")


def balanced(name: str, gpus: int = 2, plain: int = 0) -> Doc:
    """A node whose GPUs are in slices as the GPU operator's `all-balanced` has them."""
    offered = {"nvidia.com/mig-1g.10gb": str(2 * gpus), "nvidia.com/mig-2g.20gb": str(gpus)}
    offered |= {"nvidia.com/mig-3g.40gb": str(gpus), "nvidia.com/gpu": str(plain)}
    labels = {"nvidia.com/gpu.count": str(gpus + plain), "nvidia.com/gpu.memory": "81559"}
    labels |= {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return node(name, 0, labels, status={"allocatable": offered, "capacity": offered})


def sliced(name: str, on: str = "", **slices: int) -> Doc:
    asked = {f"nvidia.com/mig-{key[1:].replace('_', '.')}": str(n) for key, n in slices.items()}
    return pod(name, 0, on=on, spec={"containers": [_container(**asked)]})


def test_slices_that_a_device_plugin_counts_are_given_out() -> None:
    found = read(
        balanced("a"), sliced("there", on="a", _3g_40gb=1, _1g_10gb=2),
        *(sliced(f"p{i}", _3g_40gb=1) for i in range(2)), sliced("q", _2g_20gb=2),
    )  # fmt: skip
    assert not found.warned("fit no layout")
    plan = solve(found.snapshot, Options(workers=1))
    assert verify(found.snapshot, plan).violations == ()
    # One of the two 3g is taken; the layout stays, as nobody knows which slices the pod has.
    started = {start.job for start in plan.starts}
    assert "ml/q" in started
    assert len(started) == 2
    assert plan.reconfigures == ()


def test_layouts_of_idle_nodes_may_change() -> None:
    found = read(balanced("a"), *(sliced(f"p{i}", _3g_40gb=1) for i in range(4)))
    plan = solve(found.snapshot, Options(workers=1))
    assert verify(found.snapshot, plan).violations == ()
    assert len(plan.starts) == 4
    assert plan.reconfigures


def test_whole_gpus_beside_slices() -> None:
    found = read(
        balanced("a", gpus=1, plain=3), pod("w", 2, on="a"), sliced("s", on="a", _1g_10gb=1),
        pod("x", 1), pod("y", 1), sliced("z", _1g_10gb=1), sliced("zz", _1g_10gb=1),
    )  # fmt: skip
    assert found.jobs["ml/w"].allocation[0].gpus == (0, 1)
    plan = solve(found.snapshot, Options(workers=1))
    assert verify(found.snapshot, plan).violations == ()
    started = {start.job for start in plan.starts}
    assert "ml/z" in started or "ml/zz" in started
    assert len(started) == 2


def test_slices_that_fit_no_layout_are_left_alone() -> None:
    offered = {"nvidia.com/mig-9g.99gb": "3", "nvidia.com/gpu": "1"}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    found = read(
        node("a", 0, labels, status={"allocatable": offered, "capacity": offered}),
        sliced("p", _1g_10gb=1), pod("w", 1),
    )  # fmt: skip
    assert found.warned("fit no layout")
    plan = solve(found.snapshot, Options(workers=1))
    assert verify(found.snapshot, plan).violations == ()
    assert [start.job for start in plan.starts] == ["ml/w"]


def test_attributes_of_profiles() -> None:
    offered = {"nvidia.com/mig-1g.10gb.me": "1", "nvidia.com/mig-1g.10gb": "6"}
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "81559"}
    found = read(
        node("a", 0, labels | {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
             status={"allocatable": offered, "capacity": offered}),
        pod("p", 0, spec={"containers": [_container(**{"nvidia.com/mig-1g.10gb.me": "1"})]}),
    )  # fmt: skip
    assert found.jobs["ml/p"].request.mig == ("1g.10gb+me",)
    assert len(solve(found.snapshot, Options(workers=1)).starts) == 1


def test_shares_of_kai_and_hami() -> None:
    half = {"metadata": {"annotations": {"gpu-fraction": "0.5"}}}
    hami = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "30"}
    found = read(
        node("a"),
        pod("k", 0, **half),
        pod("h", 0, spec={"containers": [{"resources": {"limits": hami}}]}),
    )
    shares = [found.jobs[name].request.share for name in ("ml/k", "ml/h")]
    assert [(s.gpu_milli, s.memory_mib) for s in shares if s] == [(500, 40779), (300, 8000)]
    assert found.nodes["a"].shareable


def test_time_slicing() -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "2",
              "nvidia.com/gpu.product": "Tesla-T4-SHARED"}  # fmt: skip
    found = read(node("a", 8, labels), pod("p", 1), pod("q", 1, on="a"))
    a = found.nodes["a"]
    assert (a.gpu_count, a.shareable, a.max_jobs_per_gpu, a.gpus[0].model) == (
        2,
        True,
        4,
        "Tesla-T4",
    )
    share = found.jobs["ml/p"].request.share
    assert share is not None
    assert share.gpu_milli == 250
    assert found.jobs["ml/q"].request.share == share


def test_hami_tells_which_gpu() -> None:
    rows = [
        {
            "id": f"GPU-{i}",
            "index": i,
            "count": 10,
            "devmem": 81559,
            "type": "NVIDIA-H100",
            "health": i != 2,
        }
        for i in range(4)
    ]
    annotations = {"hami.io/node-nvidia-register": json.dumps(rows)}
    placed = {
        "hami.io/vgpu-mig-allocations": json.dumps(
            [{"gpuUUID": "GPU-3", "profile": "2g.20gb", "placement": {"start": 2, "size": 2}}]
        )
    }
    whole = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,81559,100:;"}
    found = read(
        node("a", metadata={"annotations": annotations}),
        pod("m", 1, on="a", metadata={"annotations": placed}),
        pod("w", 1, on="a", metadata={"annotations": whole}),
    )  # fmt: skip
    a = found.nodes["a"]
    assert (a.precision, a.gpus[0].unhealthy) == ("gpu", (2,))
    (mig,) = found.jobs["ml/m"].allocation
    assert (mig.gpus, mig.mig[0].profile, mig.mig[0].start) == ((3,), "2g.20gb", 2)
    assert found.jobs["ml/w"].allocation[0].gpus == (1,)


def test_dra_claims_hold_devices() -> None:
    def device(gpu: int, start: int) -> Doc:
        attributes = {"type": {"string": "mig"}, "profile": {"string": "3g.20gb"}}
        return {"name": f"gpu-{gpu}-mig-3g20gb-9-{start}", "attributes": attributes,
                "consumesCounters": [{"counterSet": f"gpu-{gpu}-counter-set"}]}  # fmt: skip

    version = "resource.k8s.io/v1"
    rows = [
        device(0, 0),
        device(0, 4),
        {"name": "gpu-1", "attributes": {"productName": {"string": "NVIDIA A100"}}},
    ]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    held = {
        "devices": {
            "results": [{"driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0-mig-3g20gb-9-4"}]
        }
    }
    cel = [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '3g.20gb'"}}]
    asks = {"name": "r", "exactly": {"deviceClassName": "mig.nvidia.com", "selectors": cel}}
    offered = {"nodeName": "a", "driver": "gpu.nvidia.com", "pool": pool, "devices": rows}
    found = read(
        node("a", 0),
        thing("ResourceSlice", "s", version, spec=offered),
        thing("ResourceClaim", "c", version, metadata={"namespace": "ml"},
              spec={"devices": {"requests": [asks]}}, status={"allocation": held}),
        pod("p", 0, on="a", spec={"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}),
    )  # fmt: skip
    a = found.nodes["a"]
    assert (a.gpu_count, a.gpus[0].model, a.precision) == (2, "NVIDIA-A100", "mig")
    assert [(m.gpu, [(i.profile, i.start) for i in m.instances]) for m in a.mig] == [
        (0, [("3g.20gb", 4)])
    ]
    (task,) = found.jobs["ml/p"].allocation
    assert (task.gpus, task.mig[0].start) == ((0,), 4)


# Reading


def test_streams_typed_lists_and_doubles() -> None:
    typed = json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [
        {k: v for k, v in node("a").items() if k not in ("kind", "apiVersion")}]})  # fmt: skip
    stream = f"{typed}\n{listing(pod('p'), pod('p'))}"
    found = read_kubernetes([("stream", stream), ("again", listing(node("a")))], now=NOW)
    assert [entry.name for entry in found.snapshot.nodes] == ["a"]
    assert [job.name for job in found.snapshot.jobs] == ["ml/p"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: v1", "not JSON: line 1"),
        ("[1]", "not an object"),
        ('{"kind": "List", "items": 3}', "not a list"),
        ('{"metadata": {"name": "x"}}', "kind: required"),
        ('{"kind": "Pod", "metadata": {}}', "metadata.name: required"),
        (b"PK\x03\x04nonsense", "archive can't be read"),
        ("", "empty"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cant_be_read_is_one_clear_line(text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_kubernetes([("f", text)])
    assert words in str(caught.value)
    assert str(caught.value).count("\n") == 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.just("x/y"),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
SEEDS = [
    node("a", labels={"nvidia.com/gpu.count": "2"}),
    pod("p", on="a"),
    _member("w", "g"),
    _group("g", 2, networkTopology={"mode": "hard", "highestTierAllowed": 1}),
    _hyper("s0", 1, "a"),
    _workload("w", 2),
    _cluster_queue("cq", 16),
    _local("lq", "cq"),
    thing("PriorityClass", "c", "scheduling.k8s.io/v1", value=3),
]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, entry in inner for found in _paths(entry, (*path, key)))]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_a_field_holds_the_import_ends_in_a_snapshot_or_a_fault(
    data: st.DataObject,
) -> None:
    document = json.loads(listing(*SEEDS))
    paths = [path for path in _paths(document) if len(path) > 2]
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3)):
        target: Any = document
        for key in path[:-1]:
            target = target[key] if isinstance(target, dict | list) and _has(target, key) else {}
        if isinstance(target, dict | list) and _has(target, path[-1]):
            target[path[-1]] = data.draw(JSON)
    try:
        found = read_kubernetes([("f", json.dumps(document))], now=NOW)
    except InvalidInputError as error:
        assert all("\n" not in str(fault) for fault in error.faults)  # noqa: PT017
        return
    # The loader takes what the importer makes.
    from trencadis.models import load_snapshot  # noqa: PLC0415

    load_snapshot(found.snapshot.model_dump_json())


def _has(target: Any, key: Any) -> bool:
    return key in target if isinstance(target, dict) else isinstance(key, int) and key < len(target)
