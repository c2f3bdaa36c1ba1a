from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import results
from harness.cases import Case, Dtype, Entry, Evidence, Mode, Phase, Profile, Stage, Verdict
from harness.records import Counters, Leaf, Record

ENTRY = Entry(
    model_id="google-bert/bert-base-uncased",
    revision="86b5e0934494bd15c9632b12f734a8a67f723594",
    library="transformers",
    model_type="bert",
    model_class="BertModel",
    family="text-encoder",
    task="feature-extraction",
    params=109_482_240,
    tier="smoke",
)
LEAF = Leaf(
    path="last_hidden_state",
    verdict=Verdict.PASS,
    shape=(2, 7, 32),
    dtype="float32",
    elements=448,
    scale=0.98,
    error=2e-7,
    cpu_error=1e-7,
    allowed=1e-6,
    max_error=9e-7,
    max_cpu_error=4e-7,
    max_allowed=4e-6,
    index=(1, 0, 3),
    actual=0.5000001,
    cpu=0.5,
    expected=0.50000002,
)


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes a passing record; keywords replace its fields, or those of its case and entry."""

    def make(name: str = "bert", mode: Mode = Mode.STRICT_EAGER, **changes: object) -> Record:
        entry = replace(ENTRY, model_type=name)
        made = Record(
            case=Case(entry, Phase.FORWARD, mode, Dtype.FLOAT32, Profile.PADDED),
            target="tpu-emulated",
            emulated=True,
            verdict=Verdict.PASS,
            stage=Stage.COMPARE,
            evidence=Evidence.CONFIG_FAITHFUL,
            worst=LEAF,
            leaves=2,
            seconds={"build": 0.25, "to-device": 0.5, "run": 0.125},
            counters=Counters(programs_executed=12),
            seed=2**62 + 1,
            worker="gw0",
            started_at="2026-11-30T08:03:12+00:00",
            wall_seconds=1.5,
        )
        return replace(made, **changes)

    return make


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., results.Run]:
    """Creates a run in the test's store with the given planned ids."""

    def make(planned: list[str] | None = None) -> results.Run:
        return results.create_run(tmp_path / "store", {"settings": {"target": "tpu-emulated"}}, planned or [])

    return make
