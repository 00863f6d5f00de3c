"""`trencadis serve`: the HTTP service."""

# ruff: noqa: PLC0415
# As in cli.py, nothing but Typer is imported at the top.

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Host = Annotated[str, typer.Option(envvar="TRENCADIS_HOST", help="Address to listen on.")]
Port = Annotated[int, typer.Option(envvar="TRENCADIS_PORT", min=0, max=65_535)]
TokenFile = Annotated[
    str | None,
    typer.Option("--tokens", metavar="FILE", help="A token a line, and the queue it is bound to."),
]
FileOption = Path | None
Certificate = Annotated[FileOption, typer.Option(metavar="PEM", help="TLS certificate.")]
Key = Annotated[FileOption, typer.Option(metavar="PEM", help="Its key.")]
ClientCa = Annotated[
    FileOption, typer.Option(metavar="PEM", help="Let in only clients with its certificates.")
]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes that solve.")]
Threads = Annotated[int, typer.Option(min=1, max=1_024, help="Threads of one solve.")]
RoundSeconds = Annotated[
    float, typer.Option("--round-time", metavar="S", min=0.1, max=3_600, help="Of each round.")
]
Stale = Annotated[
    float,
    typer.Option("--stale-after", metavar="S", min=1, help="Older plans answer no scheduler."),
]
KubeApi = Annotated[str, typer.Option(metavar="URL", help="API server for the verb bind.")]
KubeToken = Annotated[FileOption, typer.Option(metavar="FILE", help="Its bearer token.")]
KubeCa = Annotated[FileOption, typer.Option(metavar="PEM", help="Its authority.")]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="NAME", help="A scheduling gate that waits for us; repeatable."),
]

Prices = Annotated[
    FileOption, typer.Option(metavar="FILE", help="Price list of /v1/whatif; an example if absent.")
]


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command()(serve)


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8_888,
    tokens: TokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    client_ca: ClientCa = None,
    workers: Workers = 2,
    threads: Threads = 2,
    round_seconds: RoundSeconds = 30.0,
    stale: Stale = 300.0,
    kube_api: KubeApi = "",
    kube_token: KubeToken = None,
    kube_ca: KubeCa = None,
    gate: Gates = None,
    prices: Prices = None,
    json: Annotated[bool, typer.Option("--json", help="Log lines as JSON.")] = False,
) -> None:
    """Answer over HTTP: solve, explain, what-if, extenders of kube-scheduler and Volcano."""
    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError

    try:
        from trencadis.adapters.service.run import run
    except ModuleNotFoundError as error:
        raise CommandError(
            Code.USAGE, f"{error.name} is missing. Maybe pip install 'trencadis[service]'"
        ) from None
    from trencadis.adapters.service.config import Config, Tokens, read_tokens

    known = Tokens()
    if tokens is not None:
        with io.source_named(tokens):
            known = read_tokens(io.read(tokens).decode("utf-8", "replace"), io.name_of(tokens))
    for path in (certificate, key, client_ca, kube_token, kube_ca):
        if path is not None:
            io.read(str(path))
    if prices is not None:
        from trencadis.whatif.prices import load_prices

        with io.source_named(str(prices)):
            load_prices(io.read(str(prices)))
    config = Config(
        host=host,
        port=port,
        tokens=known,
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        workers=workers,
        threads=threads,
        round_seconds=round_seconds,
        stale_seconds=stale,
        kube_api=kube_api,
        kube_token=kube_token,
        kube_ca=kube_ca,
        gates=tuple(gate or ()),
        worker="trencadis.commands.service_worker",
        whatif=True,
        prices=prices,
    )
    config.check()
    run(config, json_logs=json)
