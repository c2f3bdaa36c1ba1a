"""pytest itself as the runner of model lists."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

ALPHA = "alpha/AlphaModel/acme/alpha/synthetic/forward"
BETA = "beta/BetaForCausalLM/acme/beta/synthetic/forward"


def test_collection_lists_case_ids_and_creates_nothing(run_pytest, models, tmp_path):
    ended = run_pytest("models.csv", "--zoo-target", "cpu", "--zoo-mode", "eager", "--collect-only", "-q")
    assert ended.code == 0, ended.both
    assert ended.out.splitlines()[:2] == [f"models.csv::{entry}/eager/float32/padded" for entry in (ALPHA, BETA)]
    assert not (tmp_path / "store").exists()


def test_keyword_node_id_and_options_select(run_pytest, models, recorded):
    assert run_pytest("models.csv", "--zoo-target", "cpu", "-k", "beta and eager").code == 0
    assert list(recorded()) == [f"{BETA}/eager/float32/padded"]
    node = f"models.csv::{ALPHA}/compiled/float32/padded"
    assert run_pytest(node, "--zoo-target", "cpu", "-n2").code == 0
    assert list(recorded()) == [f"{ALPHA}/compiled/float32/padded"]
    ended = run_pytest("models.csv", "--zoo-target=cpu", "--zoo-tier=nightly", "--zoo-dtype=bfloat16")
    assert ended.code == 0
    assert {case_id.split("/", 1)[0] for case_id in recorded()} == {"alpha", "beta", "gamma"}, "smoke is in nightly"


def test_outcomes_texts_and_junit_under_xdist(run_pytest, models, tmp_path, recorded):
    (tmp_path / "cpu.toml").write_text(
        '[[expect]]\ncase = "alpha/*"\nverdict = "RUN_ERROR"\nreason = "known since"\nadded = 2026-01-31\n'
    )
    ended = run_pytest(
        *("models.csv", "--zoo-target=cpu", "--zoo-mode=eager", "-n2", "--junitxml=junit.xml"),
        f"--zoo-expectations={tmp_path}",
        script={"alpha/*": "RUN_ERROR", "beta/*": "NUMERIC_MISMATCH"},
    )
    assert ended.code == 1
    assert "1 failed, 1 passed, 1 xfailed" in ended.out
    assert "NUMERIC_MISMATCH in compare: [bold red]not markup[/]" in ended.out
    assert f"zoo rerun {BETA}/eager/float32/padded --target cpu" in ended.out
    assert "Traceback" not in ended.out
    cases = {case.get("name"): case for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")}
    assert set(cases) == set(recorded())
    facts = {item.get("name"): item.get("value") for item in cases[f"{BETA}/eager/float32/padded"].iter("property")}
    assert facts["verdict"] == "NUMERIC_MISMATCH"
    assert facts["stage"] == "compare"
    assert facts["worst_ratio"] == "0.25"


def test_an_unexpected_pass_fails_and_runxfail_shows_expected_failures(run_pytest, models, tmp_path):
    (tmp_path / "cpu.toml").write_text(
        '[[expect]]\ncase = "alpha/*"\nverdict = "RUN_ERROR"\nreason = "known since"\nadded = 2026-01-31\n'
    )
    asked = ("models.csv", "--zoo-target=cpu", "--zoo-mode=eager", "-k", "alpha", f"--zoo-expectations={tmp_path}")
    ended = run_pytest(*asked)
    assert ended.code == 1
    assert "[unexpected-pass] PASS in compare" in ended.out
    assert "cpu.toml:1" in ended.out
    assert run_pytest(*asked, "--runxfail", script={"alpha/*": "RUN_ERROR"}).code == 1


def test_a_stopped_session_fails_and_names_what_is_missing(run_pytest, models):
    ended = run_pytest("models.csv", "--zoo-target=cpu", "-x", script={"alpha/*/compiled/*": "RUN_ERROR"})
    assert ended.code == 1
    assert "4 of 6 planned cases have no result" in ended.out
    assert f"missing {BETA}/eager/float32/padded" in ended.out


def test_a_lost_record_fails_a_session_in_which_everything_passed(run_pytest, models, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from results.journal import Journal\n"
        "append = Journal.append\n"
        "Journal.append = lambda self, row: row['model_type'] == 'beta' or append(self, row)\n"
    )
    ended = run_pytest("models.csv", "--zoo-target=cpu", "--zoo-mode=eager")
    assert "3 passed" in ended.out
    assert f"missing {BETA}/eager/float32/padded" in ended.out
    assert ended.code == 1


def test_a_failing_job_runner_is_a_harness_error_and_the_run_goes_on(run_pytest, models, recorded):
    ended = run_pytest("models.csv", "--zoo-target=cpu", "--zoo-mode=eager", script={"alpha/*": "raise"})
    assert ended.code == 1
    assert sorted(recorded().values()) == ["HARNESS_ERROR", "PASS", "PASS"]


def test_a_worker_killed_once_costs_no_verdict_and_is_told_of(zoo, models, recorded):
    asked = ("run", "--list", "models.csv", "--tier", "smoke", "--target", "cpu", "--mode", "eager", "--workers", "2")
    ended = zoo(*asked, script={"alpha/*/eager/*": "die-once"})
    assert ended.code == 0, ended.both
    assert set(recorded().values()) == {"PASS"}
    told = " ".join(ended.both.split())
    assert f"died while it ran {ALPHA}/eager/float32/padded: another one ran it again" in told


def test_a_crash_is_recorded_once_and_reported_in_words(run_pytest, models, recorded, tmp_path):
    ended = run_pytest("models.csv", "--zoo-target=cpu", "-n1", script={"alpha/*/eager/*": "die"})
    assert ended.code == 1
    assert "HARNESS_ERROR in run: the worker process gw1 died while it ran this case" in ended.out
    assert len(recorded()) == 6
    assert "1 failed, 5 passed" in ended.out
    written = (tmp_path / "store").glob("runs/*/journal/controller.jsonl")
    assert [len(path.read_text().splitlines()) for path in written] == [1]


def test_bad_options_are_usage_errors(run_pytest, models, tmp_path):
    ended = run_pytest("models.csv", "--zoo-target=cpu", "--zoo-mode=compield", "-n2")
    assert ended.code == 4
    assert "ERROR: unknown mode 'compield'; did you mean compiled?" in ended.err
    ended = run_pytest("models.csv", "--zoo-target=cpu", "--zoo-store", models / "inside", "-n2")
    assert ended.code == 4
    assert "cannot write the results store" in ended.err
    assert "Traceback" not in ended.both


def test_other_sessions_do_not_notice_the_plugin(run_pytest, models, tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure():\n"
        "    heavy = {'torch', 'pandas', 'pyarrow', 'rich', 'typer', 'results', 'harness.jobs'} & set(sys.modules)\n"
        "    print('heavy', sorted(heavy))\n"
    )
    ended = run_pytest(".", plugins="xdist.plugin,harness.pytest_plugin")
    assert ended.code == 0
    assert "1 passed" in ended.out
    assert "heavy []" in ended.out
    assert run_pytest("data.csv").code in (4, 5)


def test_collection_imports_no_torch(run_pytest, models, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure():\n    print('torch', 'torch' in sys.modules)\n"
    )
    ended = run_pytest("models.csv", "--collect-only", "-q", "--zoo-target=tpu")
    assert ended.code == 0, ended.both
    assert "torch False" in ended.out
