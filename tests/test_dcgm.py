"""`import dcgm`: what scrapes say of jobs, which part of a GPU would do, what that frees."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from command import Program
from hypothesis import given
from hypothesis import strategies as st

from trencadis.adapters.dcgm import advise, read_samples
from trencadis.adapters.dcgm.fitting import USABLE, _first_fit
from trencadis.models import InvalidInputError
from trencadis.models.mig import find_table

SAMPLES = Path(__file__).parents[2] / "shared" / "data" / "formats" / "dcgm"
A100 = "NVIDIA A100-SXM4-40GB"


def scrape(*gpus: tuple[str, str, float, int], model: str = A100, memory: int = 40_960) -> str:
    """A text of (uuid, pod, activity, used MiB) per GPU."""
    lines = ["# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB)."]
    for uuid, pod, activity, used in gpus:
        labels = f'UUID="{uuid}",modelName="{model}",Hostname="h",namespace="ns",pod="{pod}"'
        lines.append(f"DCGM_FI_DEV_FB_USED{{{labels}}} {used}")
        lines.append(f"DCGM_FI_DEV_FB_FREE{{{labels}}} {memory - used}")
        lines.append(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {activity}")
        lines.append(f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} nonsense")
    return "\n".join(lines)


def advice(*texts: str, headroom: float = 0.1):  # type: ignore[no-untyped-def]
    found, freed = advise(read_samples((f"f{i}", t) for i, t in enumerate(texts)), headroom)
    return {entry.job: entry for entry in found}, freed


def test_seven_small_jobs_share_one_gpu() -> None:
    jobs, (freed,) = advice(scrape(*((f"u{i}", f"p{i}", 0.1, 3_000) for i in range(7))))
    assert {entry.profile for entry in jobs.values()} == {"1g.5gb"}
    assert {entry.share_milli for entry in jobs.values()} == {150}
    assert (freed.jobs, freed.by_mig, freed.mig_proven) == (7, 6, True)
    assert freed.by_share == 5  # six shares of 0.15 GPU fit one


def test_the_peak_of_all_scrapes_counts() -> None:
    texts = [scrape(("u", "p", busy, used)) for busy, used in ((0.1, 9_000), (0.35, 2_000))]
    jobs, _ = advice(*texts)
    entry = jobs["ns/p"]
    assert (entry.activity, entry.used_mib, entry.samples) == (0.35, 9_000, 2)
    assert entry.profile == "3g.20gb"  # 0.385 of 7 slices are three
    assert entry.share_mib == 9_900


def test_memory_alone_can_decide() -> None:
    jobs, _ = advice(scrape(("u", "p", 0.01, 4_400)), headroom=0.1)
    # 4,840 MiB are needed, 95 % of 5,120 are usable.
    assert jobs["ns/p"].profile == "1g.5gb"
    jobs, _ = advice(scrape(("u", "p", 0.01, 4_500)), headroom=0.1)
    assert jobs["ns/p"].profile == "1g.10gb"


def test_several_gpus_at_once_stay_but_a_restart_elsewhere_is_one() -> None:
    jobs, _ = advice(scrape(("u1", "p", 0.1, 100), ("u2", "p", 0.1, 100)))
    assert (jobs["ns/p"].now, jobs["ns/p"].profile) == ("2 GPUs", None)
    jobs, _ = advice(scrape(("u1", "p", 0.1, 100)), scrape(("u2", "p", 0.2, 200)))
    assert (jobs["ns/p"].now, jobs["ns/p"].used_mib) == ("whole", 200)


def test_jobs_that_have_gone_free_nothing() -> None:
    first = scrape(("u1", "old", 0.1, 100), ("u2", "other", 0.1, 100))
    second = scrape(("u1", "new", 0.1, 100), ("u2", "other", 0.1, 100))
    jobs, (freed,) = advice(first, second)
    assert [name for name, entry in jobs.items() if not entry.present] == ["ns/old"]
    assert (freed.jobs, freed.by_mig) == (2, 1)


def test_busy_jobs_stay_and_idle_ones_are_named() -> None:
    jobs, (freed,) = advice(
        scrape(("u1", "full", 0.99, 39_000), ("u2", "idle", 0.001, 300), ("u3", "", 0, 0))
    )
    assert jobs["ns/full"].why_not == "needs what it has"
    assert not jobs["ns/full"].idle
    assert jobs["ns/idle"].idle
    assert (freed.jobs, freed.by_mig, freed.idle) == (1, 0, 2)


@given(st.floats(0, 1), st.integers(0, 40_960), st.floats(0, 0.5))
def test_the_profile_is_the_smallest_that_holds(busy: float, used: int, headroom: float) -> None:
    jobs, _ = advice(scrape(("u", "p", busy, used)), headroom=headroom)
    entry = jobs["ns/p"]
    table = find_table(A100, 40_960)
    assert table is not None
    compute = min(1.0, busy * (1 + headroom))
    memory = math.ceil(used * (1 + headroom))

    def holds(compute_slices: int, mib: int) -> bool:
        # Compute is compared in whole thousandths, rounded up.
        return compute_slices * 1_000 >= math.ceil(compute * 1_000) * 7 and mib * USABLE >= memory

    plain = [p for p in table.profiles if p.plain]
    fitting = [p for p in plain if holds(p.compute_slices, p.memory_mib)]
    if entry.profile is None:
        assert all(p.compute_slices == 7 for p in fitting)
    else:
        chosen = table.profile(entry.profile)
        assert chosen in fitting
        assert chosen.compute_slices == min(p.compute_slices for p in fitting)
    if entry.share_milli is not None:
        assert entry.share_milli >= compute * 1_000
        assert entry.share_milli <= 500


@given(st.lists(st.sampled_from([50, 150, 250, 300, 450, 500]), max_size=7))
def test_shares_fit_the_gpus_counted(shares: list[int]) -> None:
    used = _first_fit([(milli, 100) for milli in shares], 1_000)
    assert sum(shares) <= 1_000 * used
    # First fit decreasing opens at most 11/9 of the fewest GPUs, plus 6/9.
    fewest = min(len(set(bins)) for bins in _groupings(len(shares)) if _holds(shares, bins))
    assert fewest <= used <= 11 * fewest / 9 + 6 / 9


def _groupings(items: int) -> list[tuple[int, ...]]:
    """Every way to deal items to GPUs that are all alike."""
    if not items:
        return [()]
    return [
        (*dealt, gpu)
        for dealt in _groupings(items - 1)
        for gpu in range(max(dealt, default=-1) + 2)
    ]


def _holds(shares: list[int], gpus: tuple[int, ...]) -> bool:
    sums = dict.fromkeys(gpus, 0)
    for milli, gpu in zip(shares, gpus, strict=True):
        sums[gpu] += milli
    return all(milli <= 1_000 for milli in sums.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no sample of DCGM_FI_DEV_FB_USED"),
        ('DCGM_FI_DEV_FB_USED{UUID="u"', "f:1: can't be read"),
        ('\nDCGM_FI_DEV_FB_USED{gpu="0"} 5', "f:2: a GPU's sample without the label UUID"),
        ('DCGM_FI_DEV_FB_USED{UUID="u"} -5', "beyond 0 to"),
        ('DCGM_FI_DEV_FB_USED{UUID="u"} NaN', "beyond 0 to"),
        ('DCGM_FI_PROF_SM_ACTIVE{UUID="u"} 7', "beyond 0 to 1"),
    ],
)
def test_faults_name_their_line(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match="f") as caught:
        read_samples([("f", text)])
    assert said in "\n".join(caught.value.lines())


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not on this machine")
def test_real_scrapes() -> None:
    name = "dcgm-mig-2x1g.5gb+2g.10gb.prom"
    usages = read_samples([(name, (SAMPLES / name).read_text())])
    assert sorted(usage.profile for usage in usages) == ["1g.5gb", "1g.5gb", "2g.10gb"]
    assert max(usage.used_mib for usage in usages) == 4_384
    assert {usage.memory_mib for usage in usages} == {4_864, 9_855}
    assert all(usage.job == "" for usage in usages)
    text = (SAMPLES / "dcgm-2xT4-fraction.prom").read_text()
    found, (freed,) = advise(read_samples([("t4", text)]))
    assert [entry.job for entry in found] == [
        "runai-reservation/runai-reservation-gpu-qa-mig-worker-gpu-1-kvltw"
    ]
    assert (found[0].profile, found[0].share_milli, found[0].idle) == (None, 50, True)
    assert (freed.by_mig, freed.idle) == (None, 2)


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Program(monkeypatch, tmp_path)
    (tmp_path / "a.prom").write_text(scrape(("u1", "p", 0.1, 100), ("u2", "q", 0.2, 100)))
    done = program("import", "dcgm", "a.prom", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert [entry["job"] for entry in record["jobs"]] == ["ns/p", "ns/q"]
    assert record["freed"][0]["by_mig"] == 1
    assert "Peaks of 1 sample only" in done.err
    shown = program("import", "dcgm", "a.prom")
    assert "1g.5gb" in shown.out
    (tmp_path / "b.prom").write_text("nothing")
    bad = program("import", "dcgm", "b.prom")
    assert (bad.code, bad.out) == (65, "")
    assert "b.prom" in bad.err
