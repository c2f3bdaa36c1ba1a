"""Surveys are kept whole with their provenance, and what cannot be kept or read is one line."""

import pytest

from results import StoreError, keep_survey, list_surveys, load_survey


def test_a_survey_is_read_back_with_its_provenance(tmp_path):
    keep_survey(tmp_path, "coverage", [{"model_type": "old", "seconds": 1.0}], {"python": "3"})
    rows = [{"model_type": "bert", "seconds": 0.5}, {"model_type": "ga\u0142\x1b[31m", "seconds": None}]
    keep_survey(tmp_path, "coverage", rows, {"python": "4"})
    frame = load_survey("coverage", tmp_path)
    assert list(frame.model_type) == ["bert", "ga\u0142\x1b[31m"]
    assert frame.seconds.isna().tolist() == [False, True]
    assert frame.attrs["provenance"] == {"python": "4"}
    assert len(list_surveys(tmp_path, "coverage")) == 2


def test_kinds_are_kept_apart(tmp_path):
    keep_survey(tmp_path, "liveness", [{"live": True}], {})
    with pytest.raises(StoreError, match="`zoo coverage` makes one"):
        load_survey("coverage", tmp_path)


def test_what_cannot_be_kept_or_read_is_one_line(tmp_path):
    with pytest.raises(StoreError, match="valid: coverage, liveness"):
        keep_survey(tmp_path, "gossip", [], {})
    with pytest.raises(StoreError, match="do not fit one table"):
        keep_survey(tmp_path, "coverage", [{"a": 1}, {"a": "text"}], {})
    path = keep_survey(tmp_path, "coverage", [{"a": 1}], {})
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(StoreError, match="is damaged"):
        load_survey("coverage", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        keep_survey(tmp_path / "file", "coverage", [{"a": 1}], {})
