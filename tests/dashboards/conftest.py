from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import results
from harness.cases import Case, Dtype, Entry, Evidence, Mode, Phase, Profile, Stage, Verdict
from harness.records import Leaf, Record

PASSING = {"error": 4e-7, "allowed": 1e-6, "max_error": 1e-6, "max_allowed": 4e-6}


@pytest.fixture
def make_case() -> Callable[..., Case]:
    """A case of a made-up model; keywords replace fields of the entry or of the case."""

    def make(name: str = "bert", mode: Mode = Mode.STRICT_EAGER, dtype: Dtype = Dtype.FLOAT32, **entry: object) -> Case:
        facts = {
            "model_id": f"maker/{name}-base",
            "revision": "0" * 40,
            "library": "transformers",
            "model_type": name,
            "model_class": f"{name.title()}Model",
            "family": "text-encoder",
            "task": "feature-extraction",
            "params": 110_000_000,
            "tier": "smoke",
        }
        return Case(Entry(**facts | entry), Phase.FORWARD, mode, dtype, Profile.PADDED)

    return make


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A record of a case; passing unless told otherwise."""

    def make(case: Case, verdict: Verdict = Verdict.PASS, **changes: object) -> Record:
        numbers = dict(PASSING)
        if verdict == Verdict.NUMERIC_MISMATCH:
            numbers |= {"error": 2.5e-6}
        judged = verdict in (Verdict.PASS, Verdict.NUMERIC_MISMATCH)
        leaf = Leaf("last_hidden_state", verdict, (2, 7, 32), "float32", 448, index=(1, 0, 3), actual=0.5, **numbers)
        facts = {
            "target": "tpu-emulated",
            "emulated": True,
            "stage": Stage.COMPARE if judged else Stage.RUN,
            "evidence": Evidence.CONFIG_FAITHFUL,
            "worst": leaf if judged else None,
            "seconds": {"build": 0.25, "run": 0.5},
            "wall_seconds": 0.75,
            "started_at": "2026-11-30T08:03:12+00:00",
        }
        return Record(case=case, verdict=verdict, **facts | changes)

    return make


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., results.Run]:
    """Writes a run of these records, with further planned cases that never report."""

    def write(records: list[Record], unreported: list[str] | None = None, **settings: object) -> results.Run:
        planned = [record.case.id for record in records] + (unreported or [])
        provenance = {
            "python": "3.11.7",
            "packages": {"torch": "2.13.0+cpu", "libtpu": None},
            "machine": {"memory_bytes": 25 * 2**30},
            "settings": {"target": "tpu-emulated", "tier": "smoke", **settings},
        }
        run = results.create_run(tmp_path / "store", provenance, planned)
        with run.journal("gw0") as journal:
            for record in records:
                journal.append(results.row(record, run.id))
        return run

    return write
