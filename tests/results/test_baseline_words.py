from __future__ import annotations

import json
from pathlib import Path

import pytest

import results
from harness.cases import Verdict
from model_lists.expectations import load_expectations
from results import StoreError
from results.baseline import find_pair, find_run, is_green, judged


@pytest.fixture
def night(tmp_path: Path, record):
    """Makes a finished run of a given day; the ids are `names`' cases."""

    def make(
        day: str = "2026-11-30",
        *,
        target: str = "tpu-emulated",
        verdict: Verdict = Verdict.PASS,
        planned: tuple[str, ...] = (),
        **facts: object,
    ) -> str:
        settings = {
            "target": target,
            **{name: facts.pop(name) for name in ("rerun", "shard", "fault") if name in facts},
        }
        made = record(target=target, verdict=verdict)
        run = results.create_run(
            tmp_path, {"settings": settings, "emulated": "emulated" in target, **facts}, [made.case.id, *planned]
        )
        with run.journal("gw0") as journal:
            journal.append(results.row(made, run.id))
        document = json.loads((run.path / "run.json").read_text())
        # As if it had been made on that day.
        (run.path / "run.json").write_text(json.dumps(document | {"created_at": f"{day}T01:00:00+00:00"}))
        return run.id

    return make


def words(store: Path, *given: str, **options) -> tuple[str, str]:
    before, after = find_pair(store, *given, **options)
    return before.id, after.id


def test_the_default_is_the_last_run_and_the_one_before_on_its_target(tmp_path: Path, night) -> None:
    runs = [night(target=target) for target in ("tpu-emulated", "cpu", "tpu-emulated", "cpu")]
    assert words(tmp_path) == (runs[1], runs[3])
    assert words(tmp_path, target="tpu-emulated") == (runs[0], runs[2])
    assert words(tmp_path, "last", runs[0]) == (runs[2], runs[0])
    assert words(tmp_path, "previous", runs[2]) == (runs[0], runs[2])
    assert words(tmp_path, runs[0]) == (runs[0], runs[2])
    assert words(tmp_path, runs[0], runs[2]) == (runs[0], runs[2])


def test_reruns_and_faults_are_meant_only_where_there_is_nothing_else(tmp_path: Path, night) -> None:
    parts = [night(rerun=True), night(rerun=True)]
    assert words(tmp_path) == tuple(parts)
    whole = [night(), night()]
    night(rerun=True)
    night(shard="1/2")
    night(target="tpu-emulated.faulty", fault="a:b")
    assert words(tmp_path) == tuple(whole)


def test_beginnings_of_ids_have_to_be_unambiguous(tmp_path: Path, night) -> None:
    runs = [night(), night()]
    assert find_run(tmp_path, runs[0][:-1]).id == runs[0]
    with pytest.raises(StoreError, match=r"2 runs .* begin with '2'"):
        find_run(tmp_path, "2")
    for nothing in ("1999", "", "../x"):
        with pytest.raises(StoreError, match="no run"):
            find_run(tmp_path, nothing)


def test_a_date_means_the_last_run_up_to_that_day(tmp_path: Path, night) -> None:
    runs = [night("2026-11-26"), night("2026-11-28"), night("2026-11-28"), night("2026-11-30")]
    assert find_run(tmp_path, "2026-11-28").id == runs[2]
    assert find_run(tmp_path, "2026-11-27").id == runs[0]
    assert words(tmp_path, "2026-11-29") == (runs[2], runs[3])
    with pytest.raises(StoreError, match="2026-11-25"):
        find_run(tmp_path, "2026-11-25")
    with pytest.raises(StoreError, match="is no date"):
        find_run(tmp_path, "2026-13-45")


def test_a_version_means_the_last_run_with_it(tmp_path: Path, night) -> None:
    runs = [night(packages={"torch_tpu": version}) for version in ("0.1.0", "0.2.0", "0.2.0+cpu", "0.3.0")]
    assert words(tmp_path, "torch_tpu==0.1.0", "torch-tpu==0.2.0") == (runs[0], runs[2])
    assert words(tmp_path, "torch_tpu<0.3") == (runs[2], runs[3])
    with pytest.raises(StoreError, match=r"torch_tpu==0\.9"):
        find_run(tmp_path, "torch_tpu==0.9")
    with pytest.raises(StoreError, match="is no version"):
        find_run(tmp_path, "torch_tpu==")


def test_last_green_looks_back_and_goes_by_what_was_expected_then(tmp_path: Path, night) -> None:
    green = night()
    night(planned=("never/reported",))
    night(verdict=Verdict.CRASH)
    recorded = night(verdict=Verdict.CRASH, ended={"unexpected": 0, "missing": 0})
    red = night(ended={"unexpected": 1, "missing": 0})
    assert words(tmp_path, "last-green") == (recorded, red)
    assert words(tmp_path, "last-green", recorded) == (green, recorded)
    with pytest.raises(StoreError, match="last-green"):
        words(tmp_path, "last-green", green)


def test_a_run_without_its_own_judgement_is_judged_by_the_expectations_given(tmp_path: Path, night) -> None:
    (tmp_path / "tpu-emulated.toml").write_text(
        '[[expect]]\ncase = "*"\nverdict = "CRASH"\nreason = "known"\nadded = 2026-01-31\n'
    )
    known = night(verdict=Verdict.CRASH)
    last = night()
    assert find_run(tmp_path, "last-green", expectations=tmp_path).id == known
    expected = load_expectations("tpu-emulated", tmp_path)
    assert judged(find_run(tmp_path, known), expected) == {"unexpected": 0, "missing": 0}
    assert judged(find_run(tmp_path, last), expected) == {"unexpected": 1, "missing": 0}


def test_what_must_not_be_compared_is_refused_in_one_line(tmp_path: Path, night) -> None:
    emulated, cpu, tpu = night(), night(target="cpu"), night(target="tpu")
    stand_in = night(target="tpu", emulated=True)
    for before, after, said in (
        (emulated, cpu, "different targets"),
        (emulated, tpu, "different targets"),
        (tpu, stand_in, f"{stand_in} was emulated"),
        (cpu, cpu, "both are run"),
    ):
        with pytest.raises(StoreError, match=said) as caught:
            find_pair(tmp_path, before, after)
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match="previous"):
        find_pair(tmp_path, None, stand_in)


def test_a_damaged_run_is_left_out_aloud(tmp_path: Path, night, caplog) -> None:
    first, damaged, last = night(), night(), night()
    (tmp_path / "runs" / damaged / "run.json").write_text("{")
    assert words(tmp_path) == (first, last)
    assert damaged in caplog.text


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no runs yet"):
        find_pair(tmp_path)


def test_expectations_are_those_of_the_run_s_versions_and_day(tmp_path: Path, night) -> None:
    (tmp_path / "tpu-emulated.toml").write_text(
        '[[expect]]\ncase = "*"\nverdict = "CRASH"\nreason = "known"\nversions = "torch_tpu<0.3"\n'
        "added = 2026-01-31\nexpires = 2026-11-29\n"
    )
    runs = [
        night(day, verdict=Verdict.CRASH, packages={"torch_tpu": version})
        for day, version in (("2026-11-28", "0.2.0"), ("2026-11-28", "0.3.0"), ("2026-11-30", "0.2.0"))
    ]
    green = [is_green(find_run(tmp_path, run_id), tmp_path) for run_id in runs]
    assert green == [True, False, False]
