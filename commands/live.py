"""What the commands for live clusters share: one native scheduler's side, and how it is opened."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from trencadis.adapters.live.cluster import Cluster
    from trencadis.adapters.live.context import Context

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML: [live], [slurm] or [kubernetes], [policy], [[queues]]."
        " TRENCADIS_SLURM or TRENCADIS_KUBERNETES; trencadis-slurm.toml or -kubernetes.toml.",
    ),
]
State = Annotated[
    Path,
    typer.Option(
        envvar="TRENCADIS_STATE", metavar="FILE", help="The log, and what is under way (SQLite)."
    ),
]
Mode = Annotated[
    Literal["shadow", "recommend", "enforce"] | None,
    typer.Option(help="What to do with the plans."),
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option()]
Interval = Annotated[float | None, typer.Option(min=0.1, help="Seconds from round to round.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="End after so many.")]
PlanFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Each round's plan, for `apply`.")
]
MetricsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Prometheus text, for node_exporter.")
]
ReproDir = Annotated[Path, typer.Option(metavar="DIR", help="Where a failing round is saved.")]
Yes = Annotated[bool, typer.Option("--yes", help="Send the actions; else only tell.")]
Missed = Annotated[int | None, typer.Option(min=1, help="Rounds; the config's.")]
Period = Annotated[float | None, typer.Option(min=0.1, help="Seconds between looks.")]
Once = Annotated[bool, typer.Option("--once", help="Look once and end.")]
Acknowledged = Annotated[list[str], typer.Argument(metavar="JOB...")]
STATE = Path("trencadis-live.sqlite")


@dataclass(frozen=True, slots=True)
class Native:
    """One native scheduler."""

    name: str
    file: str
    """Its configuration, read where it is there and no other is named."""
    variable: str
    """Of the environment: names another."""
    load: Callable[[str], Any]
    """Its configuration from TOML; has `live`, a LiveConfig."""
    cluster: Callable[[Any], Cluster]
    """It, as it is configured."""

    def config(self, path: str | None) -> Any:
        """The configuration file; defaults where there is none."""
        from trencadis.models.load import decode
        from trencadis.views import io

        named = path or os.environ.get(self.variable)
        if not named and not Path(self.file).is_file():
            return self.load("")
        source = named or self.file
        with io.source_named(source):
            return self.load(decode(io.read(source)))

    @contextlib.contextmanager
    def opened(
        self,
        path: str | None,
        state: Path,
        log_level: str,
        *,
        mode: str | None = None,
        interval: float | None = None,
        missed: int | None = None,
    ) -> Iterator[Context]:
        """Cluster, store, rules and log of one command."""
        import sqlite3
        from datetime import UTC, datetime

        from trencadis.adapters.live.context import Context
        from trencadis.adapters.live.logs import setup
        from trencadis.adapters.live.store import Store
        from trencadis.views import io

        config = self.config(path)
        flags = {"mode": mode, "interval_seconds": interval, "missed_rounds": missed}
        live = config.live.model_copy(
            update={key: value for key, value in flags.items() if value is not None}
        )
        config = config.model_copy(update={"live": live})
        io.writable(str(state))
        with answering():
            cluster = self.cluster(config)
        try:
            store = Store(state)
        except sqlite3.Error as error:
            raise io.OutputError(f"can't keep the log in {io.clean(str(state))}: {error}") from None
        try:
            yield Context(cluster, store, live, lambda: datetime.now(UTC), setup(log_level))
        finally:
            store.close()


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """A scheduler that doesn't answer, or says no, is told in a line; so is a log that can't be
    written."""
    import sqlite3

    from trencadis.adapters.live.cluster import RefusedError, UnavailableError
    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError

    try:
        yield
    except (RefusedError, UnavailableError) as error:
        raise CommandError(Code.UNAVAILABLE, str(error)) from None
    except sqlite3.Error as error:
        raise io.OutputError(f"can't write the log: {error}") from None


def may_enforce(live: Context) -> None:
    """Ends the command where others would stop jobs too."""
    from trencadis.views.outcome import Code, CommandError

    objections = live.cluster.objections()
    if objections:
        raise CommandError(Code.USAGE, f"enforce is refused: {'; '.join(objections)}")
