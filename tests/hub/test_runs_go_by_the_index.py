"""What `zoo prefetch` found is what a run goes by: a config, a checkpoint, or the verdict of why there is none."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from fault_table import CONFIG, FILES, entry
from hub_server import Fault
from typer.testing import CliRunner

from harness import jobs
from harness.cases import Case, Dtype, Mode, Phase, Profile, Stage, Verdict, Weights
from harness.cli import made_lists
from harness.cli.app import app
from harness.hub import index
from harness.pytest_plugin.executor import Executor
from harness.records import Record
from harness.redaction import HIDDEN
from model_lists import write_list
from results import schema


class Runner:
    """Stands in for the job runner: it passes everything, and remembers what it was given."""

    def __init__(self, target, cache, **_):
        self.facts, self.given = None, []

    def run(self, case):
        self.given.append(case)
        return Record(case, "cpu", False, Verdict.PASS, Stage.COMPARE)


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """What the runner was given for an entry, None where nothing, and the row that was kept."""
    monkeypatch.setattr(jobs, "JobRunner", Runner)

    def executed(asked):
        rows = []
        run = SimpleNamespace(id="run", journal=lambda _: SimpleNamespace(append=rows.append), announce=lambda *_: None)
        target = SimpleNamespace(name="cpu", emulated=False)
        executor = Executor(target, tmp_path, run, "main", "", None, None, None)
        executor.run(Case(asked, Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED))
        return next(iter(executor._runner.given), None), rows[0]

    return executed


def prefetch(hub, tmp_path, monkeypatch, entries, *options):
    """`zoo prefetch` of a list of the entries."""
    write_list(tmp_path / "mine.csv", entries)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    return CliRunner().invoke(
        app, ["prefetch", "--list", str(tmp_path / "mine.csv"), "--cache", str(tmp_path), *options]
    )


def test_what_was_fetched_is_given_to_the_case_and_what_was_not_is_its_verdict(hub, tmp_path, monkeypatch, execute):
    alpha = hub.add("acme/alpha", FILES)
    hub.add("acme/gated", FILES, Fault("status", status=401, code="GatedRepo"))
    config = made_lists.weighed(entry("acme/alpha", Weights.SYNTHETIC), Weights.CONFIG, tmp_path)
    gated, real = entry("acme/gated"), entry("acme/alpha")
    ended = prefetch(hub, tmp_path, monkeypatch, [entry("acme/alpha", Weights.SYNTHETIC), gated, real])
    assert ended.exit_code == 1, ended.output
    assert "GATED  bert/BertModel/acme/gated/hub" in ended.output

    case, row = execute(config)
    assert (case.entry.revision, Path(case.entry.config).read_bytes()) == (alpha.commit, CONFIG)
    assert (row["entry_id"], row["revision"]) == ("bert/BertModel/acme/alpha/config", alpha.commit)
    case, _ = execute(real)
    assert case.entry.config.endswith(f"{alpha.commit}/config.json")
    case, row = execute(gated)
    assert case is None
    assert (row["verdict"], row["stage"]) == ("GATED", "fetch")
    assert "zoo prefetch --weights hub" in row["message"]
    plain = entry("acme/alpha", Weights.SYNTHETIC)
    assert execute(plain)[0].entry == plain, "what was fetched changes no case that did not ask for it"
    case, row = execute(made_lists.weighed(entry("acme/never", Weights.SYNTHETIC), Weights.CONFIG, tmp_path))
    assert (case, row["verdict"], row["stage"]) == (None, "CHECKPOINT_MISSING", "fetch")


def test_prefetch_says_when_it_is_not_the_commit_whose_code_is_trusted(hub, tmp_path, monkeypatch):
    made = hub.add("acme/alpha", FILES | {"modeling.py": b""})
    other = dataclasses.replace(entry("acme/alpha"), trusted="0" * 40)
    ended = prefetch(hub, tmp_path, monkeypatch, [other])
    said = f"code not fetched  {other.id}: it is at commit {made.commit}, and its list trusts the code of {'0' * 40}"
    assert (ended.exit_code, said in ended.output) == (0, True), ended.output
    ended = prefetch(hub, tmp_path, monkeypatch, [dataclasses.replace(other, trusted=made.commit)])
    assert "code not fetched" not in ended.output


def test_prefetch_ends_with_a_code_for_scripts(hub, tmp_path, monkeypatch):
    hub.add("acme/alpha", FILES)
    alpha, gone = entry("acme/alpha"), entry("acme/gone")
    assert prefetch(hub, tmp_path, monkeypatch, [gone]).exit_code == 2
    assert prefetch(hub, tmp_path, monkeypatch, [alpha], "--weights", "config").exit_code == 0
    assert index.read(tmp_path, Weights.HUB, "acme/alpha", "") is None
    assert prefetch(hub, tmp_path, monkeypatch, [alpha], "--quota", "1K").exit_code == 2
    assert "--quota 'odd' is no size" in str(prefetch(hub, tmp_path, monkeypatch, [alpha], "--quota", "odd").exception)
    synthetic = dataclasses.replace(alpha, weights=Weights.SYNTHETIC)
    assert prefetch(hub, tmp_path, monkeypatch, [synthetic], "--weights", "hub").exit_code == 0
    assert index.known(tmp_path, alpha).weights


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("set hf_" + "aB1" * 10, f"set {HIDDEN}"),
        ("authorization: Bearer abcdefgh123", f"authorization: Bearer {HIDDEN}"),
        ("https://me:secret@mirror/x", f"https://{HIDDEN}@mirror/x"),
        ("https://only-a-token@mirror/x?at=a@b", f"https://{HIDDEN}@mirror/x?at=a@b"),
        ("set api_org_" + "aB1" * 10, f"set {HIDDEN}"),
        ("set hf_jwt_eyJhbGciOi.eyJzdWIiOi.x-y_z0123", f"set {HIDDEN}"),
        ("/x?X-Amz-Security-Token=abc&y=1", f"/x?X-Amz-Security-Token={HIDDEN}&y=1"),
        ("/x?X-Goog-Signature=abc", f"/x?X-Goog-Signature={HIDDEN}"),
        ("/x?se=2026&sig=a%2Bb", f"/x?se=2026&sig={HIDDEN}"),
        ("GET /x?X-Amz-Signature=abc&y=1", f"GET /x?X-Amz-Signature={HIDDEN}&y=1"),
        ("my own token: moon-rise-77", f"my own token: {HIDDEN}"),
        ("hf_hub_download and a basic test", "hf_hub_download and a basic test"),
    ],
)
def test_rows_hold_no_credentials(monkeypatch, text, kept):
    monkeypatch.setenv("HF_TOKEN", "moon-rise-77")
    case = Case(entry("acme/alpha"), Phase.FORWARD, Mode.EAGER, Dtype.FLOAT32, Profile.PADDED)
    record = Record(case, "cpu", False, Verdict.RUN_ERROR, Stage.RUN, message=text, detail=text, log=text)
    row = schema.row(record, "run")
    assert {row["message"], row["detail"], row["log"]} == {kept}
