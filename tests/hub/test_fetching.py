"""Fetching from a Hub that misbehaves in every way it can: verdicts, requests, hashes, quota, tokens."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from fault_table import FILES, PATIENCE, QUOTA, entry, served
from hub_server import Fault
from safetensors.torch import load_file

from harness.cases import UNFETCHED, Verdict, Weights
from harness.hub import index, space
from harness.hub.fetch import Settings, fetch_all
from harness.redaction import HIDDEN
from model_lists import write_list

TOKEN = "hf_" + "Ab3" * 12
SIZE = sum(map(len, FILES.values()))
ROOT = Path(__file__).resolve().parents[2]


def fetch(hub, cache, *entries, **settings):
    """What became of the entries, by id."""
    asked = Settings(cache, PATIENCE, hub.endpoint, **settings)
    return {ended.entry.model_id: ended.fetched for ended in fetch_all(entries, asked)}


def other(number):
    """Another checkpoint's bytes, of the same size."""
    return FILES["model.safetensors"][:-1] + bytes([number])


def stored(cache):
    """Bytes of all files of the Hub's in a cache."""
    return sum(path.stat().st_size for path in (cache / "hub" / "files").glob("*/blobs/*"))


def test_every_fault_ends_in_its_verdict_without_a_storm_and_within_the_quota(hub, tmp_path):
    expected = served(hub, sound=12)
    found = fetch(hub, tmp_path, *map(entry, expected), quota=QUOTA)
    assert {name: one.verdict for name, one in found.items()} == {name: one.verdict for name, one in expected.items()}
    assert {name: one.moved_to for name, one in found.items() if one.moved_to} == {"faulty/renamed": "sound/new-name"}
    assert [name for name, one in expected.items() if hub.requests[name] > one.requests] == []
    assert stored(tmp_path) <= QUOTA
    assert {one.verdict for one in expected.values()} >= UNFETCHED
    assert all(one.message for one in found.values() if one.verdict)
    kept = next(one for one in found.values() if not one.verdict)
    for name, content in FILES.items():
        assert Path(kept.config).with_name(name).read_bytes() == content


def test_configs_cost_two_requests_and_none_the_next_time(hub, tmp_path):
    made = hub.add("acme/alpha", FILES)
    pinned = entry("acme/alpha", Weights.CONFIG, made.commit)
    newest = entry("acme/alpha", Weights.CONFIG)
    found = fetch(hub, tmp_path, pinned)["acme/alpha"]
    assert (found.revision, Path(found.config).read_bytes()) == (made.commit, FILES["config.json"])
    assert hub.requests["acme/alpha"] == 2
    fetch(hub, tmp_path, newest)
    hub.requests.clear()
    hub.add("acme/alpha", FILES | {"config.json": b"{}"})
    assert fetch(hub, tmp_path, pinned)["acme/alpha"] == found
    assert fetch(hub, tmp_path, newest)["acme/alpha"].revision == made.commit
    assert not hub.requests
    assert fetch(hub, tmp_path, newest, refresh=True)["acme/alpha"].revision != made.commit
    assert index.known(tmp_path, pinned) == found
    assert index.known(tmp_path, entry("acme/beta")).failed is Verdict.CHECKPOINT_MISSING
    Path(found.config).unlink()
    assert index.known(tmp_path, pinned).failed is Verdict.CHECKPOINT_MISSING
    assert fetch(hub, tmp_path, pinned)["acme/alpha"] == found


def test_a_cache_may_be_moved(hub, tmp_path):
    hub.add("acme/alpha", FILES)
    asked = [entry("acme/alpha", kind) for kind in (Weights.CONFIG, Weights.HUB)]
    for one in asked:
        fetch(hub, tmp_path / "before", one)
    (tmp_path / "before").rename(tmp_path / "after")
    for one in asked:
        found = index.known(tmp_path / "after", one)
        assert (found.failed, Path(found.config).read_bytes()) == (None, FILES["config.json"])


def test_a_config_without_an_end_is_given_up(hub, tmp_path, monkeypatch):
    hub.add("acme/alpha", {"config.json": b" " * 40_000})
    monkeypatch.setattr("harness.hub.fetch.CONFIG_BYTES", 10_000)
    found = fetch(hub, tmp_path, entry("acme/alpha", Weights.CONFIG))["acme/alpha"]
    assert (found.verdict, "larger than" in found.message) == (Verdict.HUB_ERROR, True)


def test_what_was_used_longest_ago_is_evicted_and_never_what_is_in_use(hub, tmp_path):
    names = ["acme/a", "acme/b", "acme/c"]
    for name in names:
        hub.add(name, FILES)
    room = 2 * SIZE + 500

    def present():
        return [name for name in names if index.known(tmp_path, entry(name)).failed is None]

    fetch(hub, tmp_path, entry("acme/a"), quota=room)
    fetch(hub, tmp_path, entry("acme/b"), quota=room)
    index.touch(tmp_path, index.known(tmp_path, entry("acme/a")))
    with space.in_use(tmp_path, "acme/b"):
        assert fetch(hub, tmp_path, entry("acme/c"), quota=room)["acme/c"].verdict == ""
    assert present() == ["acme/b", "acme/c"]
    with space.in_use(tmp_path, "acme/b"), space.in_use(tmp_path, "acme/c"):
        refused = fetch(hub, tmp_path, entry("acme/a"), quota=room)["acme/a"]
    assert refused.verdict == Verdict.DISK_FULL
    assert fetch(hub, tmp_path, entry("acme/a"), quota=room)["acme/a"].weights
    assert present() == ["acme/a", "acme/c"]
    assert "evicted" in index.known(tmp_path, entry("acme/b")).message
    assert stored(tmp_path) <= room


def test_the_revision_before_is_counted_until_it_is_evicted(hub, tmp_path):
    room = 2 * SIZE + 500
    hub.add("acme/a", FILES)
    first = fetch(hub, tmp_path, entry("acme/a"), quota=room)["acme/a"]
    for number in (1, 2, 3):
        hub.add("acme/a", FILES | {"tokenizer.json": b"%d" % number, "model.safetensors": other(number)})
        newest = fetch(hub, tmp_path, entry("acme/a"), quota=room, refresh=True)["acme/a"]
        assert (newest.verdict, stored(tmp_path) <= room) == ("", True)
    assert not Path(first.config).exists()
    with space.in_use(tmp_path, "acme/a"):
        hub.add("acme/a", FILES)
        refused = fetch(hub, tmp_path, entry("acme/a"), quota=room, refresh=True)["acme/a"]
    assert (refused.verdict, Path(newest.config).is_file()) == (Verdict.DISK_FULL, True)


def test_a_full_disk_is_seen_before_anything_is_fetched(hub, tmp_path, monkeypatch):
    hub.add("acme/alpha", FILES)
    monkeypatch.setattr("harness.hub.space.LEFT_FREE", 2**60)
    found = fetch(hub, tmp_path, entry("acme/alpha"))["acme/alpha"]
    assert (found.verdict, hub.requests["acme/alpha"]) == (Verdict.DISK_FULL, 1)


def test_a_killed_prefetch_goes_on_with_what_it_lacks(hub, tmp_path):
    made = hub.add("acme/alpha", FILES, Fault("stall", 1, on="GET .*/model.safetensors"))
    script = (
        "import sys; from pathlib import Path; from fault_table import entry; from harness.hub.fetch import *;"
        "list(fetch_all([entry('acme/alpha')], Settings(Path(sys.argv[1]), Patience(answer=99), sys.argv[2])))"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "0", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'hub'}"}
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), hub.endpoint], env=environment)
    while not any("GET" in request and request.endswith("cdn/acme/alpha/model.safetensors") for request, *_ in hub.log):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    unfinished = index.read(tmp_path, Weights.HUB, "acme/alpha", "")
    assert unfinished.verdict == Verdict.CHECKPOINT_MISSING
    hub.log.clear()
    assert fetch(hub, tmp_path, entry("acme/alpha"))["acme/alpha"].verdict == ""
    assert {request.rpartition("/")[2] for request, *_ in hub.log} == {made.commit, "model.safetensors"}
    assert stored(tmp_path) == SIZE


def test_a_token_goes_to_the_hub_and_nowhere_else(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.add("acme/alpha", FILES)
    hub.add("acme/echo", FILES, Fault("status", status=403, message=f"no: Bearer {TOKEN}"))
    found = fetch(hub, tmp_path, entry("acme/alpha"), entry("acme/echo"))
    sent = {(host.partition(":")[0], TOKEN in authorization) for _, authorization, host in hub.log}
    assert sent == {("127.0.0.1", True), ("localhost", False)}
    assert HIDDEN in found["acme/echo"].message
    written = "".join(path.read_text() for path in (tmp_path / "hub" / "index").rglob("*.json"))
    assert "acme/echo" in written
    assert TOKEN not in written


def test_pickles_are_read_only_where_that_is_asked_for_and_never_run(hub, tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    plain, evil, ran = io.BytesIO(), io.BytesIO(), tmp_path / "ran"
    torch.save({"a": shared, "b": shared.T, "c": shared}, plain)
    torch.save({"a": Runs(f"touch {ran}")}, evil)
    for name, content in (("old", plain.getvalue()), ("evil", evil.getvalue())):
        hub.add(f"acme/{name}", {"config.json": b"{}", "pytorch_model.bin": content, "modeling_x.py": b"import os"})
    refused = fetch(hub, tmp_path, entry("acme/old"))["acme/old"]
    assert (refused.verdict, "--allow-pickle" in refused.message) == (Verdict.NO_SAFETENSORS, True)
    found = fetch(hub, tmp_path, entry("acme/old"), entry("acme/evil"), allow_pickle=True)
    assert (found["acme/evil"].verdict, ran.exists()) == (Verdict.NO_SAFETENSORS, False)
    assert "without running code" in found["acme/evil"].message
    folder = Path(found["acme/old"].config).parent
    assert {path.name for path in folder.iterdir()} == {"config.json", "pytorch_model.bin", "model.safetensors"}
    assert found["acme/old"].bytes == sum(path.stat().st_size for path in folder.iterdir())
    read = load_file(folder / "model.safetensors")
    assert all(map(torch.equal, (read["a"], read["b"], read["c"]), (shared, shared.T, shared)))
    hub.requests.clear()
    assert fetch(hub, tmp_path, entry("acme/old"))["acme/old"] == found["acme/old"]
    assert not hub.requests
    hub.add("acme/new", FILES)
    assert fetch(hub, tmp_path, entry("acme/new"), quota=SIZE)["acme/new"].verdict == ""
    assert index.known(tmp_path, entry("acme/old")).failed is Verdict.CHECKPOINT_MISSING
    assert not list(folder.iterdir())


class Runs:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_nothing_answers(hub, tmp_path):
    endpoint, hub.endpoint = hub.endpoint, "http://127.0.0.1:9"
    try:
        found = fetch(hub, tmp_path, entry("acme/alpha"))["acme/alpha"]
    finally:
        hub.endpoint = endpoint
    assert (found.verdict, "cannot be reached" in found.message) == (Verdict.HUB_TIMEOUT, True)


def test_whoever_stops_leaves_nothing_running(hub, tmp_path):
    for number in range(40):
        hub.add(f"acme/m{number}", FILES)
    entries = [entry(f"acme/m{number}", Weights.CONFIG) for number in range(40)]
    with contextlib.closing(fetch_all(entries, Settings(tmp_path, PATIENCE, hub.endpoint), workers=2)) as each:
        next(each)
    seen = hub.requests.total()
    assert seen < 40
    time.sleep(0.1)
    assert hub.requests.total() == seen


def test_a_record_that_cannot_be_read_is_none(tmp_path):
    path = index.place(tmp_path, Weights.HUB, "acme/alpha", "")
    path.parent.mkdir(parents=True)
    for text in ("", "[]", json.dumps({"kind": "hub", "weights": []}), json.dumps({"kind": "odd", "weights": []})):
        path.write_text(text)
        assert index.read(tmp_path, Weights.HUB, "acme/alpha", "") is None


def test_everybody_waits_as_long_as_the_hub_asks(hub, tmp_path):
    hub.add("acme/busy", FILES, Fault("status", 1, status=429, headers={"Retry-After": "1"}))
    for number in range(20):
        hub.add(f"acme/m{number}", FILES)
    entries = [entry("acme/busy"), *(entry(f"acme/m{number}") for number in range(20))]
    found = fetch(hub, tmp_path, *entries)
    assert {one.verdict for one in found.values()} == {""}
    pauses = [after - before for before, after in itertools.pairwise(hub.moments)]
    assert max(pauses) > 0.9


def test_a_folder_of_files_that_others_use_too_loses_nothing_of_theirs(hub, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    monkeypatch.setenv("HF_HUB_CACHE", str(shared))
    for name in ("acme/a", "acme/b"):
        hub.add(name, FILES)
    theirs = [shared / "models--acme--a" / "blobs" / "x.1234.incomplete", shared / "models--other--c" / "blobs" / "y"]
    for path in theirs:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"theirs")
    for name in ("acme/a", "acme/b"):
        assert fetch(hub, tmp_path, entry(name), quota=SIZE + 500)[name].verdict == ""
    assert "evicted" in index.known(tmp_path, entry("acme/a")).message
    assert Path(index.known(tmp_path, entry("acme/b")).config).is_relative_to(shared)
    assert [path.read_bytes() for path in theirs] == [b"theirs", b"theirs"]


def test_prefetch_goes_on_where_it_was_interrupted(hub, tmp_path):
    names = [f"acme/m{number}" for number in range(12)]
    for name in names:
        hub.add(name, FILES, *[Fault("hang", 1)] * (name == "acme/m6"))
    write_list(tmp_path / "mine.csv", [entry(name, Weights.SYNTHETIC) for name in names])
    command = [sys.executable, "-m", "harness.cli", "prefetch", "--list", "mine.csv", "--cache", "cache", "-n", "1"]
    environment = os.environ | {"HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT), "HF_ENDPOINT": hub.endpoint}
    child = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    while "acme/m6" not in hub.requests:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert (child.returncode, "stopped: 6 of 12 ended; the same command goes on" in said) == (130, True), said
    hub.requests.clear()
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert set(hub.requests) == set(names[6:])
