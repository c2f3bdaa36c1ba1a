"""`zoo run` and `zoo rerun` from the outside: what is run, recorded, printed and returned."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter

from results import list_runs, load, provenance_of

ALPHA = "alpha/AlphaModel/acme/alpha/synthetic/forward"
BETA = "beta/BetaForCausalLM/acme/beta/synthetic/forward"


def test_a_run_records_every_planned_case_and_exits_0(zoo, models, recorded, tmp_path):
    ended = zoo("run", "--list", models, "--tier", "smoke", "--target", "cpu")
    assert ended.code == 0, ended.both
    assert recorded() == {
        f"{entry}/{mode}/float32/padded": "PASS" for entry in (ALPHA, BETA) for mode in ("eager", "compiled")
    }
    settings = provenance_of("latest", tmp_path / "store")["settings"]
    assert (settings["target"], settings["tiers"], settings["modes"]) == ("cpu", ["smoke"], ["eager", "compiled"])
    assert re.search(r"eager\s+.*float32\s+.*2\s+.*2", ended.out)


def test_a_run_with_a_fault_is_never_taken_for_one_of_the_target(zoo, models, tmp_path):
    arguments = ("--list", models, "--tier", "smoke", "--target", "cpu", "--mode", "eager")
    ended = zoo("run", *arguments, "--fault", "json:dumps")
    assert "broken on purpose with json:dumps" in ended.out
    store = tmp_path / "store"
    assert set(load(store).target) == {"cpu.faulty"}
    (failed,) = store.glob("runs/*/failures.toml")
    assert 'target = "cpu.faulty"' in failed.read_text()
    settings = provenance_of("latest", store)["settings"]
    assert (settings["target"], settings["fault"]) == ("cpu.faulty", "json:dumps")
    assert "-cpu.faulty-" in list_runs(store)[-1]
    assert "never run -> PASS" in zoo("rerun", "alpha", *arguments[:2], *arguments[4:]).out
    shown = zoo("show", "alpha", "--list", models).out
    assert f"--target cpu --list {models}\n" in shown
    assert "--target cpu.faulty" not in shown


def test_a_run_with_a_fault_goes_on_with_it(zoo, models, tmp_path):
    asked = ("--list", models, "--workers", 1)
    zoo("run", *asked, "--target", "cpu", "--fault", "json:dumps", "--fail-fast", script={"alpha/*": "RUN_ERROR"})
    store = tmp_path / "store"
    (run,) = list_runs(store)
    assert len(load(store)) < 6
    refused = zoo("run", *asked, "--resume", run, "--fault", "json:loads")
    assert refused.code == 2
    assert f"run {run} began with the fault json:dumps" in refused.err
    zoo("run", *asked, "--resume", run)
    assert list_runs(store) == [run]
    assert len(load(store)) == 6
    assert set(load(store).target) == {"cpu.faulty"}


def test_an_unexpected_failure_exits_1_is_explained_in_one_line_and_left_as_an_expectation(zoo, models, tmp_path):
    asked = ("run", "--list", models, "--target", "cpu")
    ended = zoo(*asked, script={"beta/*/compiled/*": "NUMERIC_MISMATCH"})
    assert ended.code == 1
    why = [line for line in ended.out.splitlines() if line.startswith("NUMERIC_MISMATCH (unexpected)")]
    assert len(why) == 1
    assert f"{BETA}/compiled/float32/padded" in why[0]
    (failed,) = (tmp_path / "store").glob("runs/*/failures.toml")
    assert zoo(*asked, "--expectations", failed, script={"beta/*/compiled/*": "NUMERIC_MISMATCH"}).code == 0


def test_hostile_text_is_shown_as_it_is_and_never_obeyed(zoo, models):
    ended = zoo("run", "--list", models, "--target", "cpu", script={"beta/*": "RUN_ERROR"})
    assert ended.out.count("[bold red]not markup[/]") == 4, "two cases, each as it ended and in the summary"
    assert "\x1b" not in ended.out


def test_an_expected_failure_runs_and_exits_0_and_its_pass_exits_1(zoo, models, tmp_path, recorded):
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "cpu.toml").write_text(
        '[[expect]]\ncase = "beta/*"\nverdict = "RUN_ERROR"\nreason = "known"\nadded = 2026-01-31\n', encoding="utf-8"
    )
    asked = ("run", "--list", models, "--target", "cpu", "--expectations", folder)
    ended = zoo(*asked, script={"beta/*": "RUN_ERROR"})
    assert ended.code == 0, ended.both
    assert recorded()[f"{BETA}/eager/float32/padded"] == "RUN_ERROR"
    assert "RUN_ERROR (expected)" in ended.out

    ended = zoo(*asked)
    assert ended.code == 1
    assert "PASS (unexpected-pass)" in ended.out

    ended = zoo(*asked, script={"beta/*": "TIMEOUT"})
    assert ended.code == 1
    assert "TIMEOUT (changed-failure)" in ended.out


def known(folder, *entries):
    """A file of expectations for the target cpu: `(case, verdict, more)` each."""
    path = folder / "cpu.toml"
    text = [
        f'[[expect]]\ncase = "{case}"\nverdict = "{verdict}"\nreason = "known"\nadded = 2026-01-31\n{more}\n'
        for case, verdict, more in entries
    ]
    path.write_text("".join(text), encoding="utf-8")
    return path


def test_an_expired_expectation_is_red_and_its_case_runs_all_the_same(zoo, models, tmp_path, recorded):
    file = known(tmp_path, ("beta/*", "RUN_ERROR", "expires = 2026-02-01"))
    ended = zoo("run", "--list", models, "--target", "cpu", "--expectations", file, script={"beta/*": "RUN_ERROR"})
    assert ended.code == 1, ended.both
    assert "RUN_ERROR (expired)" in ended.out
    assert recorded()[f"{BETA}/eager/float32/padded"] == "RUN_ERROR"


def test_an_expectation_that_speaks_of_nothing_is_red_where_the_whole_list_ran(zoo, models, tmp_path):
    file = known(tmp_path, ("betta/*", "RUN_ERROR", ""), ("alpha/*/single", "CRASH", ""), ("bert/*", "CRASH", ""))
    asked = ("run", "--list", models, "--target", "cpu", "--mode", "eager", "--expectations", file)
    ended = zoo(*asked)
    assert ended.code == 1, ended.both
    assert "never-matching: betta/* (cpu.toml:1) is no case of these lists" in ended.out
    assert ended.out.count("never-matching") == 1, "another profile, and what another list may have, are not covered"
    assert zoo(*asked, "-k", "beta").code == 0, "a part of the list says nothing of the rest"
    known(tmp_path, ("betta/*", "RUN_ERROR", 'versions = "torch<1"'))
    assert zoo(*asked).code == 0, "inert"


def test_contradicting_expectations_are_bad_input(zoo, models, tmp_path):
    known(tmp_path, ("beta/*/eager/*", "RUN_ERROR", ""), ("beta/*/float32/*", "CRASH", ""))
    ended = zoo("run", "--list", models, "--target", "cpu", "--expectations", tmp_path)
    assert ended.code == 2
    assert f"ERROR: cpu.toml:7: CRASH for {BETA}/eager/float32/padded contradicts RUN_ERROR (cpu.toml:1)" in ended.err
    assert not (tmp_path / "store" / "runs").exists()


def test_pass_after_failure_is_flaky_and_one_attempt_may_be_asked_for(zoo, models, tmp_path):
    file = known(tmp_path, ("alpha/*", "CRASH", ""))
    script = {"beta/*/eager/*": "CRASH,PASS", "alpha/*": "CRASH,PASS", "gamma/*": "TIMEOUT,CRASH"}
    asked = ("run", "--list", models, "--target", "cpu", "--mode", "eager", "--expectations", file)
    assert zoo(*asked, script=script).code == 1
    rows = load(tmp_path / "store", "latest").set_index("model_type")
    assert dict(rows.verdict) == {"alpha": "CRASH", "beta": "FLAKY", "gamma": "TIMEOUT"}
    tried = {name: [one["verdict"] for one in json.loads(text or "[]")] for name, text in rows.attempts.items()}
    assert tried == {"alpha": [], "beta": ["CRASH", "PASS"], "gamma": ["TIMEOUT", "CRASH"]}, "alpha is expected to"
    assert "run again, it ended as CRASH" in rows.message["gamma"]
    zoo(*asked, "--one-attempt", "-k", "beta", script=script)
    assert list(load(tmp_path / "store", "latest").verdict) == ["CRASH"]


def test_a_backend_that_fails_everything_is_not_run_twice_for_ever(zoo, models, tmp_path):
    every = ("--mode", "eager", "--mode", "compiled", "--dtype", "float32", "--dtype", "bfloat16")
    every += ("--profile", "padded", "--profile", "single")
    asked = ("run", "--list", models, "--target", "cpu", *every, "--workers", "1")
    ended = zoo(*asked, script={"alpha/*": "CRASH", "beta/*": "RUN_ERROR", "*": "RUN_ERROR"})
    tried = [len(json.loads(text or "[]")) for text in load(tmp_path / "store", "latest").attempts]
    assert sorted(tried) == [0] * 14 + [2] * 10
    assert "ran no more failures again: 10 had failed alike both times" in " ".join(ended.out.split())
    ended = zoo(*asked, script={"alpha/*/compiled/*": "CRASH,PASS", "*": "RUN_ERROR"})
    tried = [len(json.loads(text or "[]")) for text in load(tmp_path / "store", "latest").attempts]
    assert sum(tried) > 2 * 10, "a flaky one shows that second attempts are worth it"


def test_nothing_measured_exits_2(zoo, models):
    ended = zoo("run", "--list", models, "--target", "cpu", script={"*": "BACKEND_UNAVAILABLE"})
    assert ended.code == 2


def test_a_worker_killed_by_9_costs_only_its_current_case(zoo, models, recorded, tmp_path):
    trace = tmp_path / "trace"
    ended = zoo(
        *("run", "--list", models, "--target", "cpu", "--workers", 2),
        script={"alpha/*/eager/*": "die"},
        ZOO_FAKE_TRACE=str(trace),
    )
    assert ended.code == 1
    verdicts = recorded()
    assert verdicts.pop(f"{ALPHA}/eager/float32/padded") == "HARNESS_ERROR"
    assert len(verdicts) == 5
    assert set(verdicts.values()) == {"PASS"}
    started = Counter(line.split()[1] for line in trace.read_text().splitlines())
    assert started.pop(f"{ALPHA}/eager/float32/padded") == 2, "it is given up when it has killed a second worker"
    assert set(started.values()) == {1}


def test_cases_of_a_model_stay_on_one_worker(zoo, models, tmp_path):
    trace = tmp_path / "trace"
    zoo("run", "--list", models, "--target", "cpu", "--workers", 2, ZOO_FAKE_TRACE=str(trace))
    workers: dict[str, set[str]] = {}
    for line in trace.read_text().splitlines():
        worker, case_id = line.split()
        workers.setdefault(case_id.split("/")[0], set()).add(worker)
    assert {model: len(names) for model, names in workers.items()} == {"alpha": 1, "beta": 1, "gamma": 1}
    assert len(set.union(*workers.values())) == 2


def test_fail_fast_stops_and_names_what_has_no_result_and_resume_runs_it(zoo, models, recorded, tmp_path):
    asked = ("--list", models, "--target", "cpu", "--workers", 1)
    ended = zoo("run", *asked, "--fail-fast", script={"alpha/*/eager/*": "RUN_ERROR"})
    assert ended.code == 1
    before = recorded()
    assert len(before) < 6
    assert f"missing {BETA}/compiled/float32/padded" in ended.out

    trace = tmp_path / "trace"
    ended = zoo("run", "--resume", "latest", *asked, ZOO_FAKE_TRACE=str(trace))
    after = recorded()
    assert len(after) == 6
    assert after[f"{ALPHA}/eager/float32/padded"] == "RUN_ERROR"
    assert len(trace.read_text().splitlines()) == 6 - len(before)
    assert ended.code == 1, "the resumed run still holds the unexpected failure"


def test_sigterm_ends_children_keeps_results_and_leaves_a_resumable_run(environment, models, tmp_path, recorded):
    hanging, closed = tmp_path / "hanging", tmp_path / "closed"
    env = environment({"beta/*": "hang"}, ZOO_FAKE_HANGING=str(hanging), ZOO_FAKE_CLOSED=str(closed))
    command = [sys.executable, "-m", "zoo_fakes", "run", "--list", str(models), "--target", "cpu", "--workers", "1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not hanging.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert recorded() == {f"{ALPHA}/{mode}/float32/padded": "PASS" for mode in ("eager", "compiled")}
    assert "--resume" in out
    assert "gw0" in closed.read_text(), "the worker's job runner was not closed"


def test_rerun_shows_the_last_verdict_beside_the_new_one(zoo, models):
    asked = ("rerun", "BetaForCausalLM", "--list", models, "--target", "cpu", "--mode", "eager")
    assert "never run -> RUN_ERROR" in zoo(*asked, script={"beta/*": "RUN_ERROR"}).out
    ended = zoo(*asked)
    assert "RUN_ERROR -> PASS" in ended.out
    assert ended.code == 0


def test_rerun_of_a_full_case_id_runs_that_case_alone(zoo, models, recorded):
    case_id = f"{BETA}/compiled/bfloat16/single"
    ended = zoo("rerun", case_id, "--list", models, "--target", "cpu")
    assert ended.code == 0, ended.both
    assert recorded() == {case_id: "PASS"}


def test_controller_and_workers_stay_small_and_import_no_torch(zoo, models, tmp_path):
    closed = tmp_path / "closed"
    zoo("run", "--list", models, "--target", "cpu", ZOO_FAKE_CLOSED=str(closed))
    seen = dict(line.split(maxsplit=1) for line in closed.read_text().splitlines())
    assert {"controller", "gw0"} <= set(seen)
    for who, facts in seen.items():
        megabytes, torch_imported = facts.split()
        assert torch_imported == "False", who
        assert int(megabytes) < 200, who


def test_list_and_show_and_doctor(zoo, models):
    listed = zoo("list", "--list", models, "--family", "vision")
    facts = "gamma GammaModel acme/gamma-one vision image-classification nightly synthetic transformers 12"
    assert listed.out == "\t".join(f"{facts} unknown unknown".split()) + "\n"

    zoo("run", "--list", models, "--target", "cpu", "--select", "beta", script={"beta/*/eager/*": "RUN_ERROR"})
    shown = zoo("show", "beta", "--list", models)
    assert shown.code == 0
    assert "acme/beta" in shown.out
    assert "RUN_ERROR" in shown.out
    assert f"zoo rerun 'beta/BetaForCausalLM/acme/beta/synthetic/*' --target cpu --list {models}\n" in shown.out

    doctor = zoo("doctor", "--target", "cpu", HF_TOKEN="hf_very_secret")
    assert doctor.code == 0, doctor.both
    assert "present" in doctor.out
    assert "hf_very_secret" not in doctor.both
    broken = zoo("doctor", "--target", "cpu", script={"target": "unavailable"})
    assert broken.code == 2
    assert "no device here" in broken.out


def test_the_live_display_on_a_terminal(environment, models, tmp_path):
    controller, terminal = os.openpty()
    command = [sys.executable, "-m", "zoo_fakes", "run", "--list", str(models), "--target", "cpu"]
    env = environment({"beta/*": "RUN_ERROR"}, TERM="xterm-256color")
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(controller)
    assert process.wait(timeout=60) == 1
    text = shown.decode(errors="replace")
    assert "6/6" in text
    assert "elapsed" in text
    assert "[bold red]not markup[/]" in text
    assert "Traceback" not in text


def test_models_without_an_asked_phase_are_counted(zoo, models):
    beta = "text-generation,,smoke,synthetic,,"
    models.write_text(models.read_text().replace(beta, f"{beta}forward train"))
    ended = zoo("run", "--list", "models.csv", "--target", "cpu", "--mode", "eager", "--phase", "train", "--dry-run")
    assert ended.code == 0
    assert ended.out.split() == ["beta/BetaForCausalLM/acme/beta/synthetic/train/eager/float32/padded"]
    assert "of the chosen models 2 have no train" in ended.err
    every = zoo("run", "--list", "models.csv", "--target", "cpu", "--mode", "eager", "--dry-run")
    assert len(every.out.split()) == 4
    assert "have no" not in every.err
