"""A worker of the service that also compares scenarios: `adapters` can't import `whatif`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trencadis.adapters.service.worker import Header, main, options_of, seen_by
from trencadis.models import Fault, InvalidInputError, Snapshot, load_plan, load_snapshot
from trencadis.models.load import decode, duplicate_keys
from trencadis.solver.round import Options
from trencadis.whatif.clusters import MOST_NODES
from trencadis.whatif.compare import report, sides
from trencadis.whatif.prices import PriceList, example_prices, load_prices
from trencadis.whatif.scenario import Scenario, changed, load_scenario

KEYS = {"snapshot", "scenarios", "fabric"}
MOST_SCENARIOS = 16


def compared(header: Header, body: bytes) -> tuple[Header, bytes]:
    """The task `whatif`: pushed state, its plan and the question, one behind the other.

    Raises InvalidInputError with paths into the question.
    """
    first, second = header["snapshot_bytes"], header["plan_bytes"]
    asked = _question(body[first + second :])
    path = header.get("prices")
    prices = example_prices() if path is None else load_prices(Path(path).read_bytes())
    fabric = asked.get("fabric")
    if fabric is not None and (not isinstance(fabric, str) or prices.fabric(fabric) is None):
        raise InvalidInputError([Fault("$.fabric", f"the prices have no fabric {fabric!r}")])
    snapshot = _snapshot(header, asked, body[:first], body[first : first + second])
    scenarios = _scenarios(asked, snapshot)
    rounds = len(scenarios) + 1
    seconds = min(header["time_limit"], header["total_seconds"] / rounds)
    options = options_of({**header, "time_limit": seconds})
    return {}, _told(snapshot, scenarios, prices, fabric, options)


def _told(
    snapshot: Snapshot,
    scenarios: list[Scenario],
    prices: PriceList,
    fabric: str | None,
    options: Options,
) -> bytes:
    for index, entry in enumerate(scenarios):  # so that faults name the scenario
        with _below(f"$.scenarios[{index}]"):
            changed(snapshot, entry, prices)
    done = sides(snapshot, scenarios, prices, options)
    return json.dumps(report(done, prices, fabric)).encode()


def _question(text: bytes) -> dict[str, Any]:
    decoded = decode(text)
    try:
        asked = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError([Fault("$", f"Invalid JSON: {error}")]) from None
    faults = duplicate_keys(decoded)
    if not isinstance(asked, dict):
        raise InvalidInputError([Fault("$", "a question has scenarios, and may have a snapshot")])
    faults += [Fault(f"$.{key}", "there is no such field") for key in sorted(asked.keys() - KEYS)]
    if faults:
        raise InvalidInputError(faults)
    return asked


def _snapshot(header: Header, asked: dict[str, Any], kept: bytes, plan: bytes) -> Snapshot:
    """The question's own snapshot; else the pushed state as the token may see it."""
    if "snapshot" in asked:
        with _below("$.snapshot"):
            return load_snapshot(json.dumps(asked["snapshot"]))[0]
    if not kept:
        message = "there is no pushed state with a plan; give a snapshot here, or push one first"
        raise InvalidInputError([Fault("$.snapshot", message)])
    snapshot, _ = load_snapshot(kept)
    viewer = header.get("viewer")
    return snapshot if viewer is None else seen_by(snapshot, load_plan(plan), viewer)[0]


def _scenarios(asked: dict[str, Any], snapshot: Snapshot) -> list[Scenario]:
    given = asked.get("scenarios")
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_SCENARIOS:
        message = f"a list of 1 to {MOST_SCENARIOS} scenarios"
        raise InvalidInputError([Fault("$.scenarios", message)])
    found = []
    for index, entry in enumerate(given):
        with _below(f"$.scenarios[{index}]"):
            name = f"scenario-{index + 1}"
            found.append(load_scenario(json.dumps(entry), snapshot, toml=False, name=name))
    nodes = sum(addition.count for scenario in found for addition in scenario.add)
    if nodes > MOST_NODES:
        message = f"the scenarios add {nodes:,} nodes; at most {MOST_NODES:,} in all"
        raise InvalidInputError([Fault("$.scenarios", message)])
    return found


@contextlib.contextmanager
def _below(path: str) -> Iterator[None]:
    """Puts the paths of faults below the place of a document in the question."""
    try:
        yield
    except InvalidInputError as error:
        faults = [Fault(path + f.path.removeprefix("$"), f.message) for f in error.faults]
        raise InvalidInputError(faults) from None
    except RecursionError:
        raise InvalidInputError([Fault(path, "nested too deeply")]) from None


if __name__ == "__main__":
    main({"whatif": compared})
