"""Lists that commands make: checkpoints in folders, and listed models with other weights."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fault_table import FILES, entry

from harness.cases import Weights
from harness.cli import asked, made_lists, options
from harness.derived import derived_path
from model_lists import DERIVED_TIERS, ListError, list_path, load_list, write_list
from results.provenance import collect

BERT = json.dumps({"model_type": "bert", "architectures": ["BertModel"]}).encode()


@pytest.fixture
def registered(tmp_path):
    """A cache whose derived list knows one class, so that nothing has to be derived."""
    path = derived_path(tmp_path)
    path.parent.mkdir(parents=True)
    write_list(path, [replace(entry("google-bert/bert-base-uncased", Weights.SYNTHETIC), tier="architectures")])
    return tmp_path


def test_a_folder_is_a_model_of_its_own(registered):
    tmp_path, folder = registered, registered / "my checkpoint!"
    folder.mkdir()
    with pytest.raises(ListError, match="no checkpoint"):
        made_lists.of_checkpoints([str(folder)], tmp_path)
    config = {"model_type": "bert", "architectures": ["BertModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ListError, match="no checkpoint"):
        made_lists.of_checkpoints([str(folder)], tmp_path)
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    (made,) = made_lists.of_checkpoints([str(folder)], tmp_path)
    (found,) = load_list(made)
    assert found.tier not in DERIVED_TIERS, "nobody expects of one checkpoint what is known of all architectures"
    assert (found.id, found.config) == ("bert/BertModel/mycheckpoint/hub", str(folder / "config.json"))
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Odd"]}))
    with pytest.raises(ListError, match="'Odd' is no model class"):
        made_lists.of_checkpoints([str(folder)], tmp_path)


def test_a_checkpoint_behind_links_stays_where_its_weights_are(registered):
    blobs, snapshot = registered / "blobs", registered / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name, content in (("config.json", BERT), ("model.safetensors", FILES["model.safetensors"])):
        (blobs / f"hash-of-{name}").write_bytes(content)
        (snapshot / name).symlink_to(blobs / f"hash-of-{name}")
    (made,) = made_lists.of_checkpoints([str(snapshot)], registered)
    assert load_list(made)[0].config == str(snapshot / "config.json")


def test_two_folders_of_one_name_are_not_one_model(registered):
    for parent in ("a", "b"):
        folder = registered / parent / "mine"
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes(BERT)
        (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    with pytest.raises(ListError, match="same name"):
        made_lists.of_checkpoints([str(registered / "a" / "mine"), str(registered / "b" / "mine")], registered)


def test_other_weights_are_another_list_with_the_same_name_and_content_on_every_machine(tmp_path):
    smoke = list_path("smoke")
    (here,) = made_lists.with_weights([smoke], "config", tmp_path / "a")
    (there,) = made_lists.with_weights([smoke], "config", tmp_path / "b" / "deeper")
    assert here.read_bytes() == there.read_bytes()
    assert options.list_name(here) == options.list_name(there) == "smoke+config"
    assert options.list_paths(["smoke+config"], cache=tmp_path / "a") == (here,)
    before, after = load_list(smoke), load_list(here)
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert {new.weights for new in changed} == {Weights.CONFIG}
    assert {old.id for old in before if old.package} <= {new.id for new in after}, "a package keeps its checkpoint"
    assert all(new.config.startswith(str(tmp_path / "a" / "hub" / "configs")) for new in changed)
    assert load_list(made_lists.with_weights([here], "synthetic", tmp_path)[0]) == before
    assert made_lists.with_weights([smoke], "synthetic", tmp_path) == (smoke,)
    with pytest.raises(ListError, match="valid: synthetic, config, hub"):
        made_lists.with_weights([smoke], "odd", tmp_path)


def test_an_id_says_with_which_weights_a_model_is_meant(tmp_path):
    (listed,) = (one for one in load_list("smoke") if one.model_type == "bert" and not one.package)
    asked = listed.id.removesuffix(Weights.SYNTHETIC) + Weights.CONFIG
    paths = options.list_paths(None, words=[asked], cache=tmp_path)
    assert asked in {one.id for path in paths for one in load_list(path)}


def test_a_run_is_found_its_lists_again(tmp_path):
    own = tmp_path / "mine.csv"
    write_list(own, [entry("acme/alpha", Weights.SYNTHETIC)])
    made = made_lists.with_weights([list_path("smoke"), own], "hub", tmp_path)
    run = SimpleNamespace(provenance=collect(made, {}))
    assert set(asked.lists_of(run, (), tmp_path)) == set(made)
