"""What kinds of node there are to rent, with which fabric, at which price."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trencadis.models.base import ByName, Count, Milli, Name, Names, Positive, Record
from trencadis.models.load import parse


class Sku(Record):
    """A kind of node."""

    name: Name
    gpu_model: Name
    gpus: Annotated[int, Field(strict=True, ge=0, le=64)]
    gpu_memory_mib: Count = 0
    cpu_milli: Count = 0
    memory_mib: Count = 0
    nvlink: Literal["nvswitch", "none"] = "nvswitch"
    price_per_hour_milli: Count | None = None
    """On demand, thousandths of the currency, without fabric; none where unknown."""
    source: str = ""
    """Where the price is from, and of which date."""


class FabricKind(Record):
    """A network between nodes."""

    name: Name
    leaf: Name
    """Row of `policy.slowdown_milli` for gangs under one leaf switch."""
    beyond: Name
    """Row for gangs that span leaves."""
    nodes_per_leaf: Positive = 16
    price_per_node_hour_milli: Count = 0


class Contract(Record):
    """Terms for a node that is kept for months."""

    name: Name
    months: Annotated[int, Field(strict=True, ge=1, le=120)]
    """Its term."""
    discount_milli: Milli = 0
    """Off the price on demand, thousandths."""
    penalty_milli: Milli | None = None
    """Part of the unpaid rest that ending it early costs; absent: it can't be ended."""
    prorated: bool = False
    """Of a term that goes beyond what is planned for, only the months within count; else all do."""
    skus: Names = ()
    """The kinds that it is for; all where empty."""
    source: str = ""


class Burst(Record):
    """Nodes that can be had for an hour: in replays they take preempted jobs that wait."""

    name: Name
    sku: Name
    """The kind of node."""
    price_per_hour_milli: Count
    """Of a node, for each begun hour, thousandths of the currency, network included."""
    nodes: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 64
    """At once, at most."""
    fabric: Name | None = None
    """The network between them; as the cluster's levels where absent."""
    start_seconds: Count = 300
    """Until a node can be used."""
    after_seconds: Count = 0
    """How long ago a job must have been told to stop before it goes there."""
    source: str = ""


class PriceList(Record):
    """Prices of one day. Prices change: give a file of your own."""

    as_of: str
    currency: str = "USD"
    note: str = ""
    skus: tuple[Sku, ...] = ()
    fabrics: tuple[FabricKind, ...] = ()
    contracts: tuple[Contract, ...] = ()
    bursts: tuple[Burst, ...] = ()
    gpu_hour_milli: ByName[Count] = Field(default_factory=dict)
    """By GPU model, for clusters that are given as snapshots."""

    @model_validator(mode="after")
    def _names_differ(self) -> PriceList:
        for kind, names in (
            ("SKU", [entry.name for entry in self.skus]),
            ("fabric", [entry.name for entry in self.fabrics]),
            ("contract", [entry.name for entry in self.contracts]),
            ("burst kind", [entry.name for entry in self.bursts]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"a {kind} is given twice: {', '.join(twice)}")
        return self

    def sku(self, name: str) -> Sku | None:
        """The kind of node with this name."""
        return next((entry for entry in self.skus if entry.name == name), None)

    def gpu_hour(self, model: str) -> int | None:
        """Price of a GPU-hour of the model, however it is capitalised; thousandths."""
        if model in self.gpu_hour_milli:
            return self.gpu_hour_milli[model]
        same = (p for name, p in self.gpu_hour_milli.items() if name.casefold() == model.casefold())
        return next(same, None)

    def fabric(self, name: str) -> FabricKind | None:
        """The fabric with this name."""
        return next((entry for entry in self.fabrics if entry.name == name), None)


def example_prices() -> PriceList:
    """The list that comes with the package, with its sources and date."""
    text = files("trencadis.whatif").joinpath("prices.json").read_text(encoding="utf-8")
    return parse(PriceList, text)


def load_prices(text: str | bytes) -> PriceList:
    """A price list in JSON. Raises InvalidInputError."""
    return parse(PriceList, text)
