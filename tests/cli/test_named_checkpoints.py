"""`zoo run --model`: checkpoints in folders, in folders of folders, and at URLs."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from safetensors.numpy import save
from safetensors.torch import load_file
from typer.testing import CliRunner

from harness.cases import Entry, Weights
from harness.cli import checkpoints, made_lists
from harness.cli.app import app
from harness.derived import derived_path
from harness.hub import index, space
from model_lists import ListError, write_list
from results import StoreError

CONFIG = json.dumps({"model_type": "bert", "architectures": ["BertModel"]}).encode()
FILES = {
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model.safetensors": save({"weight": np.arange(1000, dtype=np.float32)}),
    "modeling_own.py": b"raise SystemExit",
}
SIZE = sum(len(content) for name, content in FILES.items() if name != "modeling_own.py")


@pytest.fixture
def bucket():
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/zoo-bucket", recursive=True)


def put(files, folder, **changed):
    for name, content in (FILES | {name.replace("__", "."): content for name, content in changed.items()}).items():
        if content is not None:
            files.pipe_file(f"/zoo-bucket/{folder}/{name}", content)


def at_hand(place, cache, **options):
    with checkpoints.at_hand([place], cache, **options) as folders:
        return [Path(folder) for folder in folders]


def test_a_url_is_copied_once_without_code_and_again_when_it_changes(bucket, tmp_path, capsys):
    put(bucket, "own/alpha")
    (first,) = at_hand("memory://zoo-bucket/own/alpha", tmp_path)
    assert first.name == "alpha"
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        name: content for name, content in FILES.items() if name != "modeling_own.py"
    }
    assert at_hand("memory://zoo-bucket/own/alpha", tmp_path) == [first]
    assert capsys.readouterr().err.count("copying") == 1
    put(bucket, "own/alpha", tokenizer__json=b"[]")
    (second,) = at_hand("memory://zoo-bucket/own/alpha", tmp_path)
    assert ((second / "tokenizer.json").read_bytes(), second == first) == (b"[]", False)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_checkpoint_in_a_bucket(new_bucket, tmp_path, scheme):
    url = new_bucket(scheme)
    for name, content in FILES.items():
        fsspec.filesystem(scheme).pipe_file(f"{url}/own/alpha/{name}", content)
    (folder,) = at_hand(f"{url}/own", tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: content for name, content in FILES.items() if name != "modeling_own.py"
    }


class Runs:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_pickled_weights_are_taken_where_that_is_asked_for_and_never_run(bucket, tmp_path, where):
    plain, evil, ran = io.BytesIO(), io.BytesIO(), tmp_path / "ran"
    torch.save({"a": torch.arange(6.0)}, plain)
    torch.save({"a": Runs(f"touch {ran}")}, evil)
    for name, content in (("old", plain.getvalue()), ("evil", evil.getvalue())):
        put(bucket, name, model__safetensors=None, pytorch_model__bin=content)
        bucket.get(f"/zoo-bucket/{name}", str(tmp_path / name), recursive=True)
    old, bad = [str(tmp_path / name) if where == "here" else f"memory://zoo-bucket/{name}" for name in ("old", "evil")]
    with pytest.raises(ListError, match="--allow-pickle"):
        made_lists.of_checkpoints(at_hand(old, tmp_path / "cache"), tmp_path / "cache")
    with pytest.raises(ListError, match="without running code"):
        at_hand(bad, tmp_path / "cache", allow_pickle=True)
    assert not ran.exists()
    (folder,) = at_hand(old, tmp_path / "cache", allow_pickle=True)
    assert torch.equal(load_file(folder / "model.safetensors")["a"], torch.arange(6.0))
    assert at_hand(old, tmp_path / "cache", allow_pickle=True) == [folder]
    assert not (tmp_path / "old" / "model.safetensors").exists()


def test_a_folder_of_checkpoints_is_all_of_them(bucket, tmp_path):
    for name in ("alpha", "beta"):
        put(bucket, f"many/{name}")
        (tmp_path / "here" / name).mkdir(parents=True)
        (tmp_path / "here" / name / "config.json").write_bytes(CONFIG)
    (tmp_path / "here" / "notes").mkdir()
    assert [folder.name for folder in at_hand("memory://zoo-bucket/many", tmp_path)] == ["alpha", "beta"]
    assert [folder.name for folder in at_hand(str(tmp_path / "here"), tmp_path)] == ["alpha", "beta"]
    assert at_hand(str(tmp_path / "here" / "notes"), tmp_path) == [tmp_path / "here" / "notes"]


def test_copies_keep_to_the_quota_and_stay_while_they_are_used(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(space, "QUOTA", SIZE + 10)
    put(bucket, "alpha")
    put(bucket, "beta")
    with checkpoints.at_hand(["memory://zoo-bucket/alpha"], tmp_path) as (alpha,):
        with pytest.raises(ListError, match="beta: DISK_FULL: needs"):
            at_hand("memory://zoo-bucket/beta", tmp_path)
        assert Path(alpha, "model.safetensors").is_file()
    (beta,) = at_hand("memory://zoo-bucket/beta", tmp_path)
    assert (Path(alpha, "model.safetensors").exists(), (beta / "model.safetensors").is_file()) == (False, True)
    assert at_hand("memory://zoo-bucket/alpha", tmp_path) == [Path(alpha)]


def test_a_copy_that_ends_early_is_none(bucket, tmp_path, monkeypatch):
    put(bucket, "alpha")
    whole = type(bucket).get_file

    def half(files, source, goal, **options):
        whole(files, source, goal, **options)
        if source.endswith(".safetensors"):
            Path(goal).write_bytes(Path(goal).read_bytes()[:100])

    monkeypatch.setattr(type(bucket), "get_file", half)
    with pytest.raises(ListError, match=r"TRUNCATED: model\.safetensors: 100 bytes came of"):
        at_hand("memory://zoo-bucket/alpha", tmp_path)
    assert index.read(tmp_path, Weights.HUB, "memory://zoo-bucket/alpha", "").failed
    monkeypatch.undo()
    (alpha,) = at_hand("memory://zoo-bucket/alpha", tmp_path)
    assert (alpha / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"model__safetensors": None, "pytorch_model__bin": b"x"}, "NO_SAFETENSORS: .* pytorch_model.bin"),
        ({"config__json": None}, "GONE: .* no config.json"),
    ],
)
def test_what_is_no_checkpoint_is_told_in_a_line(bucket, tmp_path, changed, complaint):
    put(bucket, "alpha", **changed)
    with pytest.raises(ListError, match=complaint):
        at_hand("memory://zoo-bucket/alpha", tmp_path)


def test_a_url_that_nothing_can_reach_is_told_in_a_line(tmp_path):
    with pytest.raises(StoreError, match="cannot reach the checkpoint odd://there/x"):
        at_hand("odd://me:secret@there/x", tmp_path)


def test_a_url_is_planned_like_any_model(bucket, tmp_path):
    put(bucket, "alpha")
    entry = Entry("a/b", "", "transformers", "bert", "BertModel", "text-encoder", "", None, "smoke", Weights.SYNTHETIC)
    derived_path(tmp_path).parent.mkdir(parents=True)
    write_list(derived_path(tmp_path), [entry])
    options = ["--target", "cpu", "--cache", str(tmp_path), "--store", str(tmp_path / "store"), "--dry-run"]
    ended = CliRunner().invoke(app, ["run", "--model", "memory://zoo-bucket/alpha", *options])
    assert ended.exit_code == 0, ended.output
    assert re.search(r"bert/BertModel/alpha/hub", ended.output)
