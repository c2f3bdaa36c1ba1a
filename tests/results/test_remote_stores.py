"""Stores that lie elsewhere, on file systems that fsspec itself brings, and in buckets."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

import results
from results.remote import is_url, local_folder, mirror, pull, push


@pytest.fixture(params=["memory://zoo-test/store", "file://{}/elsewhere", "dir::file://{}/elsewhere", "s3", "gs"])
def url(request, tmp_path: Path, new_bucket):
    if request.param in ("s3", "gs"):
        yield f"{new_bucket(request.param)}/store"
        return
    yield request.param.format(tmp_path)
    memory = fsspec.filesystem("memory")
    if memory.exists("/zoo-test"):
        memory.rm("/zoo-test", recursive=True)


@pytest.fixture
def run(record, new_run) -> results.Run:
    made = record()
    run = new_run([made.case.id])
    with run.journal("gw0") as journal:
        journal.append(results.row(made, run.id))
    run.announce("gw0", {"case": made.case.id})
    return run


def test_a_run_comes_back_as_it_was(tmp_path, url, run):
    results.seal(run)
    push(run, url)
    pull(url, tmp_path / "copy")
    assert results.list_runs(tmp_path / "copy") == [run.id]
    copy = results.open_run(tmp_path / "copy", run.id)
    assert (copy.provenance, copy.planned, copy.live()) == (run.provenance, run.planned, {})
    assert results.load(tmp_path / "copy").equals(results.load(tmp_path / "store"))
    with copy.journal("gw1"):
        pass


def test_what_was_continued_replaces_what_was_there(tmp_path, url, run):
    push(run, url)
    results.seal(run)
    push(run, url)
    pull(url, tmp_path / "copy")
    assert (results.latest(tmp_path / "copy").path / "rows.parquet").is_file()


def test_a_run_that_is_only_partly_there_is_not_there(tmp_path, url, run, monkeypatch):
    (run.path / "run.json").rename(tmp_path / "kept")
    push(run, url)
    pull(url, tmp_path / "copy")
    assert results.list_runs(tmp_path / "copy") == []


def test_the_newest_and_the_wanted_runs(tmp_path, url, new_run):
    runs = [new_run(["a/case"]) for _ in range(4)]
    for run in reversed(runs):
        push(run, url)
    pull(url, tmp_path / "two", newest=2)
    assert results.list_runs(tmp_path / "two") == [run.id for run in runs[2:]]
    pull(url, tmp_path / "one", wanted=lambda run_id: run_id == runs[0].id)
    assert results.list_runs(tmp_path / "one") == [runs[0].id]


def test_an_empty_store_has_no_runs(tmp_path, url):
    pull(url, tmp_path / "copy")
    assert results.list_runs(tmp_path / "copy") == []


@pytest.mark.parametrize(
    ("url", "said"), [("nope://somewhere", "nope"), ("file:///proc/nowhere/store", "cannot reach the results store")]
)
def test_what_cannot_be_reached_is_one_line(run, url, said):
    with pytest.raises(results.StoreError, match=said) as caught:
        push(run, url)
    assert "\n" not in str(caught.value)


def test_a_password_is_not_shown(run):
    with pytest.raises(results.StoreError) as caught:
        push(run, "nope://me:secret@somewhere/store")
    assert "secret" not in str(caught.value)


def test_what_is_a_url(tmp_path):
    assert is_url("s3://bucket/store")
    assert is_url("dir::memory://a")
    assert not is_url("zoo-results")
    assert mirror("s3://a", tmp_path) != mirror("s3://b", tmp_path)
    with pytest.raises(results.StoreError, match="is no folder"):
        local_folder("gs://bucket/store")
