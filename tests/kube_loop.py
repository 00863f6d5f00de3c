"""The live loop on the world of `kube_server`, with first fit for a solver or a real one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from kube_server import World
from live_fake import first_fit

from trencadis.adapters.kubernetes.live import KubernetesCluster, KubernetesConfig, load_config
from trencadis.adapters.kubernetes.live.api import Api
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.store import Store
from trencadis.models import Plan, Snapshot

TEXT = """
[live]
mode = "enforce"
start_timeout_seconds = 6
retry_after_seconds = 2
missed_rounds = 3
interval_seconds = 1
scope = { namespaces = ["ml"] }
[kubernetes]
pods_timeout_seconds = 1
"""


def config_of(kubeconfig: Path, text: str = TEXT) -> KubernetesConfig:
    config = load_config(text)
    options = config.kubernetes.model_copy(update={"kubeconfig": str(kubeconfig)})
    return config.model_copy(update={"kubernetes": options})


def context(
    world: World, kubeconfig: Path, state: Path, api: Api | None = None, text: str = TEXT
) -> Context:
    config = config_of(kubeconfig, text)
    log = logging.getLogger("trencadis.live.test")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    cluster = KubernetesCluster(config, api, lambda: world.now)
    return Context(cluster, Store(state), config.live, lambda: world.now, log)


def loop(
    live: Context,
    preempt: Mapping[str, str] | None = None,
    solve: Callable[[Snapshot], Plan] | None = None,
) -> Loop:
    return Loop(live, solve or (lambda snapshot: first_fit(snapshot, preempt)))
