"""Sweeps over many entries: one process each, and whatever ends one is a row."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.cases import Phase, Stage, Verdict
from harness.execution.liveness import Reason
from harness.jobs import liveness_sweep, sweep
from harness.jobs.supervisor import Limits, ServerFailed
from model_lists import load_list

ENTRIES = {entry.model_type: entry for entry in load_list("smoke") if entry.weights == "synthetic"}
MISSPELT = dataclasses.replace(ENTRIES["bert"], model_class="BertForPoetry")


def test_liveness_of_several_models_side_by_side():
    measured = {one.entry: one for one in liveness_sweep.sweep([MISSPELT, ENTRIES["bert"], ENTRIES["vit"]], workers=2)}
    assert len(measured) == 3
    assert measured[MISSPELT].verdict is Verdict.BUILD_ERROR
    assert "no model class BertForPoetry" in measured[MISSPELT].message
    assert measured[MISSPELT].tensors == ()
    for name in ("bert", "vit"):
        one = measured[ENTRIES[name]]
        assert (one.verdict, one.stage) == (Verdict.PASS, Stage.RUN)
        assert one.cpu_seconds > 0
        dead = [tensor for tensor in one.tensors if tensor.reason is not None]
        assert len(one.tensors) > 30
        assert {tensor.reason for tensor in dead} == {Reason.CANCELLED}, "a bias of keys moves no attention"
        assert all(tensor.name.endswith(("key.bias", "k_proj.bias")) for tensor in dead)


def test_tensors_of_a_base_model_are_sought_in_phases_of_other_classes():
    with_head = next(entry for entry in load_list("smoke") if entry.model_class == "BertForMaskedLM")
    names = ["embeddings.word_embeddings.weight", "pooler.dense.weight"]
    asked = dict.fromkeys((with_head, ENTRIES["wavlm"], MISSPELT), names)
    found = {one.entry: one for one in liveness_sweep.seek(asked, Phase.TRAIN, workers=2)}
    assert found[with_head].live == ("embeddings.word_embeddings.weight",), "a head for masked words has no pooler"
    assert found[ENTRIES["wavlm"]] == liveness_sweep.Sought(ENTRIES["wavlm"], Verdict.PASS, "", ()), "it has no loss"
    assert found[MISSPELT].verdict is Verdict.BUILD_ERROR
    assert "no model class BertForPoetry" in found[MISSPELT].message


def test_a_death_costs_its_own_entry_and_leaves_no_folder(monkeypatch, tmp_path):
    folder = tmp_path / ("longer than the path of a socket may be " * 3)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parents[2]}")
    entries = [ENTRIES["bert"], ENTRIES["vit"]]
    ended = list(sweep.outcomes("hostile:killed", entries, Limits()))
    assert [entry for entry, _, _ in ended] == entries
    for _, outcome, found in ended:
        assert sweep.verdict_of(outcome)[0] is not Verdict.PASS
        assert outcome.signal == "SIGKILL"
        assert found is None
    assert not list(folder.iterdir())


def test_a_server_that_cannot_start_is_raised_not_swallowed(monkeypatch):
    def failing(*_):
        raise ServerFailed("no server here")

    monkeypatch.setattr(sweep.Server, "join", failing)
    with pytest.raises(ServerFailed, match="no server here"):
        list(sweep.outcomes("hostile:nothing", [ENTRIES["bert"]], Limits(), workers=2))
