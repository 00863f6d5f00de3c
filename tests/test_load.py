"""Whatever text comes in, reading ends in a record or in faults, a line each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from build import NOW, at, hold, job, node, queue, quota, running, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from trencadis.models import (
    InvalidInputError,
    Licence,
    Qos,
    Segments,
    Snapshot,
    load_plan,
    load_policy,
    load_snapshot,
)
from trencadis.models.check import check

NOW_TEXT = '"2026-01-05T12:00:00Z"'
BAD_TEXT: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "$: the input is empty"),
    "blank": ("  \n", "$: the input is empty"),
    "truncated": ('{"now": ' + NOW_TEXT, "$: Invalid JSON: EOF"),
    "malformed": ("{now: 1}", "$: Invalid JSON: "),
    "trailing": ('{"now": ' + NOW_TEXT + "}}", "$: Invalid JSON: trailing"),
    "list": ("[]", "$: Input should be an object"),
    "null": ("null", "$: Input should be an object"),
    "not UTF-8": (b'{"now": "\xff"}', "$: not UTF-8 text: byte 0xff at position 9"),
    "UTF-16": ('{"now": 1}'.encode("utf-16"), "$: not UTF-8 text"),
    "deep": ("[" * 100_000, "$: Invalid JSON: recursion limit exceeded"),
    "deep objects": ('{"a":' * 100_000, "$: Invalid JSON: recursion limit exceeded"),
    "no now": ("{}", "$.now: required field is missing"),
    "NaN": (f'{{"now": {NOW_TEXT}, "budget_use": {{"moves_last_hour": NaN}}}}', "$.budget_use."),
    "infinite": ('{"now": 1e400}', "$.now: "),
    "local time": ('{"now": "2026-01-05T12:00:00"}', "$.now: Input should have timezone info"),
    "end of time": ('{"now": "9999-12-31T23:59:59-14:00"}', "$.now: in UTC this lies outside"),
    "digits": ('{"now": ' + "9" * 5_000 + "}", "$: Invalid JSON: number out of range"),
    "lone surrogate": ('{"now": "\\ud800"}', "$: Invalid JSON: "),
    "unknown field": (f'{{"now": {NOW_TEXT}, "node": []}}', "$.node: unknown field. Maybe nodes?"),
    "twice": (
        f'{{"now": {NOW_TEXT}, "now": {NOW_TEXT}}}',
        "$.now: the object has this field twice",
    ),
    "version": (
        f'{{"now": {NOW_TEXT}, "schema_version": 2}}',
        "$.schema_version: Input should be 1",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_text(case: str) -> None:
    text, start = BAD_TEXT[case]
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(text)
    lines = caught.value.lines()
    assert lines[0].startswith(start), lines
    assert len(lines) == 1
    assert all(len(line) < 300 for line in lines)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-1", "greater than or equal to 0"),
        ("1.5", "a valid integer"),
        ("1e400", "a valid integer"),
        ("-Infinity", "a valid integer"),
        ("NaN", "a valid integer"),
        (str(10**30), "less than or equal to 1000000000"),
        ('"8"', "a valid integer"),
        ("true", "a valid integer"),
    ],
)
def test_bad_numbers(value: str, message: str) -> None:
    text = f'{{"now": {NOW_TEXT}, "nodes": [{{"name": "n1", "cpu_milli": {value}}}]}}'
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(text)
    (fault,) = caught.value.faults
    assert fault.path == "$.nodes[0].cpu_milli"
    assert message in fault.message


def test_a_field_given_twice_deep_inside_is_told_with_its_path() -> None:
    entries = '[{"name": "a"}, {"name": "b", "labels": {"x": "1", "x": "2"}}]'
    text = f'{{"now": {NOW_TEXT}, "nodes": {entries}}}'
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(text)
    assert [fault.path for fault in caught.value.faults] == ["$.nodes[1].labels.x"]


def test_keys_cannot_smuggle_control_characters_or_endless_lines_into_a_message() -> None:
    fields = {"now": "2026-01-05T12:00:00Z", "\x1b[31m": 1, "k" * 5_000: 1}
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(json.dumps(fields))
    assert len(caught.value.faults) == 2
    for line in caught.value.lines():
        assert line.isprintable()
        assert len(line) < 200


def test_a_byte_order_mark_is_no_fault() -> None:
    snap, warnings = load_snapshot(b"\xef\xbb\xbf" + f'{{"now": {NOW_TEXT}}}'.encode())
    assert snap == Snapshot(now=NOW)
    assert warnings == []


def test_another_policy_is_checked_against_the_jobs() -> None:
    text = snapshot(job("p", priority="high")).model_dump_json()
    load_snapshot(text)
    policy = load_policy('{"tiers": [{"name": "only"}], "default_tier": "only"}')
    with pytest.raises(InvalidInputError, match=r"\$\.jobs\[0\]\.priority.*tiers are only"):
        load_snapshot(text, policy)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("tiers = [", "$: Invalid TOML: "),
        ("horizon_seconds = 1\nhorizon_seconds = 2", "$: Invalid TOML: "),
        ("horizon_seconds = nan", "$.horizon_seconds: Input should be a valid integer"),
        ("horizont_seconds = 1", "$.horizont_seconds: unknown field. Maybe horizon_seconds?"),
        (
            '[[tiers]]\nname = "a"\n[[tiers]]\nname = "a"',
            "$: tier names must differ; given twice: a",
        ),
        ("x = " + "[" * 10_000, "$: Invalid TOML: "),
    ],
)
def test_bad_toml(text: str, start: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_policy(text, toml=True)
    assert caught.value.lines()[0].startswith(start)


def test_a_plan_with_a_gap_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_plan('{"proof": {"stages": [], "gap": NaN, "status": "OPTIMAL"}}')
    assert "$.proof.gap" in {fault.path for fault in caught.value.faults}


# Whatever stands in a file, reading it ends in a snapshot or in faults

RICH = snapshot(
    node("n1", {"A": 4, "B": 4}, unhealthy=(7,), fabric=("s", "l"), mig=(6,), free_for=60),
    node("n2", 4, links=((0, 1), (2, 3)), fabric=("s", "m"), taints=("t=v",)),
    queue("lab", guarantee=6),
    queue("red", "lab", guarantee=quota(4, A=2), limit=8, lending=1),
    Qos(name="long"),
    Licence(name="cad", total=3),
    job("p", 2, 4, queue="red", qos="long", licences={"cad": 1}, required="leaf", group="g"),
    job("s", tasks=4, min_tasks=2, queue="red", segments=Segments(tasks=2, level="spine")),
    running("r", at("n1", 0, 1), at("n2", 0, 1), queue="red", after=("gone",)),
    hold("p", at("n1", 2, 3)),
    levels=("spine", "leaf"),
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 8, 64, 10**9, 10**9 + 1, 2**63, 10**30]),
    st.floats(),
    st.sampled_from(["", "n1", "red", "lab", "node", "leaf", "p", "r", "A", "pending", "running"]),
    st.text(max_size=8),
    st.lists(st.integers(-1, 9), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, entry in inner:
        found.append((*path, key))
        if isinstance(entry, dict | list):
            found += spots(entry, (*path, key))
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_is_changed_reading_ends_in_a_snapshot_or_in_faults(data: st.DataObject) -> None:
    document = RICH.model_dump(mode="json")
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(spots(document)))
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        action = data.draw(st.sampled_from(["replace", "drop", "double"]))
        if action == "drop":
            del holder[path[-1]]
        elif action == "double" and isinstance(holder, list):
            holder.append(holder[path[-1]])
        else:
            holder[path[-1]] = data.draw(ODD)
    text = json.dumps(document)
    try:
        read, warnings = load_snapshot(text)
    except InvalidInputError as error:
        told = [*error.faults]
        sound = False
    else:
        assert read.fingerprint()
        told, sound = warnings, True
    assert told or sound
    for fault in told:
        assert fault.path.startswith("$")
        assert "\n" not in str(fault)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_snapshot_cut_short_is_told(data: st.DataObject) -> None:
    text = RICH.model_dump_json()
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(cut)
    assert caught.value.faults[0].path == "$"


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        load_snapshot(data)
    with pytest.raises(InvalidInputError):
        load_plan(data)


def test_the_rich_snapshot_is_sound() -> None:
    assert check(RICH) == []
