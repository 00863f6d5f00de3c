"""What the commands for a live Slurm share: the configuration, the store, what failures say."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trencadis.adapters.live.context import Context
    from trencadis.adapters.slurm.live import SlurmConfig

CONFIG = "trencadis-slurm.toml"


def read_config(path: str | None) -> SlurmConfig:
    """The configuration file; defaults where there is none."""
    from trencadis.adapters.slurm.live import SlurmConfig, load_config
    from trencadis.models.load import decode
    from trencadis.views import io

    if path is None and not Path(CONFIG).is_file():
        return SlurmConfig()
    source = path or CONFIG
    with io.source_named(source):
        return load_config(decode(io.read(source)))


@contextlib.contextmanager
def opened(
    path: str | None,
    state: Path,
    log_level: str,
    *,
    mode: str | None = None,
    interval: float | None = None,
    missed: int | None = None,
) -> Iterator[Context]:
    """Cluster, store, rules and log of one command. `apply`, pause and the like act as enforce."""
    from datetime import UTC, datetime

    from trencadis.adapters.live.context import Context
    from trencadis.adapters.live.logs import setup
    from trencadis.adapters.live.store import Store
    from trencadis.adapters.slurm.live import SlurmCluster
    from trencadis.views import io

    config = read_config(path)
    flags = {"mode": mode, "interval_seconds": interval, "missed_rounds": missed}
    live = config.live.model_copy(
        update={key: value for key, value in flags.items() if value is not None}
    )
    config = config.model_copy(update={"live": live})
    io.writable(str(state))
    store = Store(state)
    try:
        yield Context(
            SlurmCluster(config),
            store,
            live,
            lambda: datetime.now(UTC),
            setup(log_level),
        )
    finally:
        store.close()


@contextlib.contextmanager
def native() -> Iterator[None]:
    """A scheduler that doesn't answer, or says no, is told in a line."""
    from trencadis.adapters.live.cluster import RefusedError, UnavailableError
    from trencadis.views.outcome import Code, CommandError

    try:
        yield
    except (RefusedError, UnavailableError) as error:
        raise CommandError(Code.UNAVAILABLE, str(error)) from None
