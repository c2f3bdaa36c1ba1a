"""`zoo expect`: a file of expectations listed, checked, and brought up to date with a run."""

from __future__ import annotations

import pytest

import results
from harness.cases import Case, Dtype, Mode, Profile, Stage, Verdict
from harness.cli import main
from harness.records import Record
from model_lists import load_list

ALPHA = "alpha/AlphaModel/acme/alpha/synthetic"


def table(case, verdict):
    return f'[[expect]]\ncase = "{case}"\nverdict = "{verdict}"\nreason = "known"\nadded = 2026-01-31\n'


@pytest.fixture
def zoo(tmp_path, monkeypatch, capsys):
    """`zoo(*arguments)` runs the command line in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("ZOO_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def run(tmp_path, models):
    """`run(alpha=Verdict.CRASH)` is a run of all cases in float32; other models pass."""

    def make(target="cpu", fault="", **verdicts):
        modes, entries = (Mode.EAGER, Mode.COMPILED), load_list(models)
        cases = [Case(entry, "forward", mode, Dtype.FLOAT32, Profile.PADDED) for entry in entries for mode in modes]
        facts = {"settings": {"target": target, "fault": fault}, "packages": {"torch": "2.13.0"}}
        made = results.create_run(tmp_path / "store", facts, [case.id for case in cases])
        with made.journal("main") as journal:
            for case in cases:
                verdict = verdicts.get(case.entry.model_type, Verdict.PASS)
                journal.append(results.row(Record(case, target, False, verdict, Stage.RUN, message="broke"), made.id))
        return made.id

    return make


@pytest.fixture
def known(tmp_path):
    """`known((case, verdict, more), ...)` writes `cpu.toml`."""

    def write(*entries):
        path = tmp_path / "cpu.toml"
        text = [f"# on {case}\n{table(case, verdict)}{more}\n" for case, verdict, more in entries]
        path.write_text("".join(text), encoding="utf-8")
        return path

    return write


def test_a_run_brings_the_file_up_to_date(zoo, run, known, tmp_path):
    file = known(("beta/*", "RUN_ERROR", ""), ("alpha/*", "CRASH", 'versions = "torch<1"'))
    before = file.read_text()
    run(alpha=Verdict.OOM_DEVICE)
    update = ("expect", "update", "--from", "latest", "--expectations", tmp_path)
    code, out, _ = zoo(*update, "--dry-run")
    assert (code, file.read_text()) == (0, before)
    assert '-case = "beta/*"' in out
    assert f'+case = "{ALPHA}/*/float32/padded"' in out
    assert zoo(*update) == (0, f"{file}: 2 entries before, 2 now\n", "")
    after = file.read_text()
    assert '# on alpha/*\n[[expect]]\ncase = "alpha/*"' in after
    assert "beta" not in after
    assert zoo(*update) == (0, f"{file}: nothing to change\n", "")
    assert file.read_text() == after


def test_a_target_without_a_file_gets_one(zoo, run, tmp_path):
    run(alpha=Verdict.CRASH)
    assert zoo("expect", "update", "--from", "latest", "--expectations", tmp_path)[0] == 0
    assert (tmp_path / "cpu.toml").read_text().startswith('target = "cpu"\n\n[[expect]]\n')


def test_a_list_of_failures_adds_and_changes_and_takes_nothing_for_passed(zoo, known, tmp_path):
    file = known(("beta/*", "RUN_ERROR", ""), ("alpha/*", "CRASH", ""), ("gamma/*", "TIMEOUT", ""))
    failed = tmp_path / "failures.toml"
    failed.write_text(
        'target = "cpu"\n'
        + table("alpha/*", "TIMEOUT")
        + table("gamma/x", "TIMEOUT")
        + table("delta/*", "CRASH")
        + table("epsilon/*", "DISK_FULL")
    )
    update = ("expect", "update", "--expectations", tmp_path, "--from")
    assert zoo(*update, failed)[0] == 0
    _, out, _ = zoo("expect", "list", "--expectations", file)
    assert [tuple(line.split("\t")[1:3]) for line in out.splitlines()] == [
        ("beta/*", "RUN_ERROR"),
        ("gamma/*", "TIMEOUT"),
        ("alpha/*", "TIMEOUT"),
        ("delta/*", "CRASH"),
    ]
    failed.write_text(failed.read_text().replace('target = "cpu"', 'target = "cpu.faulty"'))
    assert zoo(*update, failed)[0] == 2
    failed.write_text(failed.read_text().replace('target = "cpu.faulty"', ""))
    assert 'write target = "NAME" at its top' in zoo(*update, failed)[2]
    assert zoo(*update, tmp_path / "nowhere.toml")[0] == 2


def test_nothing_is_learnt_from_a_run_with_a_fault_or_of_no_target(zoo, run, tmp_path):
    update = ("expect", "update", "--from", "latest", "--expectations", tmp_path)
    run(target="cpu.faulty", fault="json:dumps", alpha=Verdict.CRASH)
    code, _, said = zoo(*update)
    assert (code, said.count("\n")) == (2, 1)
    assert "broken on purpose with json:dumps" in said
    assert not list(tmp_path.glob("cpu*.toml"))


def test_check_says_what_is_red_and_what_is_broken(zoo, known, models, tmp_path):
    check = ("expect", "check", "--expectations", tmp_path, "--list", models)
    inert = ("beta/*", "CRASH", 'versions = "torch<1"')
    file = known(inert, ("alpha/*/train/*", "CRASH", ""), ("alpha/*", "CRASH", ""))
    code, _, said = zoo(*check)
    assert code == 2
    assert f"{file}:9: never counts, since cpu.toml:16 covers all of 'alpha/*/train/*'" in said
    file = known(("betta/*", "CRASH", ""), ("beta/*", "CRASH", "expires = 2026-02-01"), ("bert/*", "CRASH", ""))
    code, out, _ = zoo(*check)
    assert code == 1
    assert f"{file}:2: never-matching: betta/*\n" in out
    assert f"{file}:9: expired: beta/*\n" in out
    assert f"{file}: 3 entries, 0 of them inert\n" in out
    known(("beta/*/eager/*", "CRASH", ""), ("beta/*/float32/*", "TIMEOUT", ""))
    assert "contradicts" in zoo(*check)[2]
    known(("beta/*/eager/*", "CRASH", ""))
    assert zoo(*check)[0] == 0
    known(("beta/*", "CRSH", ""))
    for verb in (check, ("expect", "list", "--expectations", tmp_path)):
        code, _, said = zoo(*verb)
        assert (code, said.count("\n")) == (2, 1)
        assert f"{file}:4: unknown verdict: 'CRSH'; did you mean CRASH?" in said


def test_show_says_what_is_known_and_what_is_inert(zoo, run, known, models):
    file = known(("beta/*/eager/*", "CRASH", ""), ("alpha/*", "CRASH", 'versions = "torch<1"'))
    shown = zoo("show", "alpha", "--list", models, "--expectations", file)[1]
    assert "known on cpu: alpha/*  CRASH  (inert: torch is " in shown
    assert "beta" not in shown
    shown = zoo("show", "beta", "--list", models, "--expectations", file)[1]
    assert "known on cpu: beta/*/eager/*  CRASH  (in force; cpu.toml:2): known" in shown
    compiled = "beta/BetaForCausalLM/acme/beta/synthetic/forward/compiled/float32/padded"
    assert "known on" not in zoo("show", compiled, "--list", models, "--expectations", file)[1]


def test_show_says_how_steady_a_case_is(zoo, run, models, tmp_path):
    run(beta=Verdict.FLAKY)
    run()
    shown = zoo("show", "beta", "--list", models, "--expectations", tmp_path)[1]
    assert shown.count("not steady on cpu: FLAKY in 1 of 2 runs") == 2, "eager and compiled"
    assert "not steady" not in zoo("show", "alpha", "--list", models, "--expectations", tmp_path)[1]
