"""The list of all that the installed transformers registers: complete, valid, made once, torch-free to use."""

import subprocess
import sys

import pytest

from harness import derived
from harness.cases import Phase
from harness.registry import transformers_registry
from model_lists import DERIVED_TIERS, ListError, load_list, write_list


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    derived.derived_list(folder)
    return folder


def test_every_registered_type_with_a_class_has_one_entry_in_its_tier(cache):
    from harness.models import registered

    rows = load_list(derived.derived_list(cache))
    stand_ins = [row.model_type for row in rows if row.tier == DERIVED_TIERS[0]]
    assert sorted(stand_ins) == sorted(registered.base_pairs())
    assert {(row.model_type, row.model_class) for row in rows} == {
        (pair.model_type, pair.model_class) for pair in registered.pairs()
    }
    assert len(rows) == len(registered.pairs())
    # What is read as text, without importing the library, is the same.
    known = transformers_registry().classes
    assert sorted(known) == sorted(registered.model_types())
    assert {(kind, name) for kind in known for name in known[kind]} == {
        (pair.model_type, pair.model_class) for pair in registered.pairs() if pair.model_type in known
    }


def test_phases_are_those_of_the_class(cache):
    phases = {row.model_class: row.phases for row in load_list(derived.derived_list(cache)) if row.model_type == "bert"}
    assert phases["BertModel"] == (Phase.FORWARD,)
    assert phases["BertForSequenceClassification"] == (Phase.FORWARD, Phase.TRAIN)
    assert phases["BertLMHeadModel"] == (Phase.FORWARD, Phase.GENERATE, Phase.TRAIN)


def test_it_is_derived_once(cache, monkeypatch):
    def never(*_, **__):
        raise AssertionError("derived again")

    monkeypatch.setattr(subprocess, "run", never)
    assert derived.derived_list(cache).is_file()


def test_a_library_that_cannot_be_read_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "transformers.py").write_text("raise ImportError('half installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ListError, match="cannot be derived: ImportError: half installed"):
        derived.derived_list(tmp_path / "cache")
    assert not derived.derived_path(tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ListError, match="cannot be written"):
        derived.derived_list(tmp_path / "file")


@pytest.mark.parametrize(
    ("word", "known"), [("xlnet", True), ("XLNetModel", True), ("xlnt", False), ("", False), ("[a-z", False)]
)
def test_words_are_looked_up_in_the_librarys_own_tables(word, known):
    assert derived.registered_word(word) is known


def test_using_the_list_imports_no_torch(cache):
    code = (
        "import sys; from pathlib import Path; from harness.cli import options;"
        f"print(len(options.list_paths(None, words=['xlnet'], cache=Path({str(cache)!r}))), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_a_written_list_is_read_back_alike(tmp_path):
    entries = load_list("smoke")
    write_list(tmp_path / "copy.csv", entries)
    assert load_list(tmp_path / "copy.csv") == entries
