"""`zoo clusters`, and `zoo rerun` of what a run left failing."""

import json

import pytest

from harness.triage.signatures import VERSION

ALPHA = "alpha/AlphaModel/acme/alpha/synthetic/forward/{}/float32/padded"
BETA = "beta/BetaForCausalLM/acme/beta/synthetic/forward/{}/float32/padded"


def facts(model, **said):
    return {
        "entry_id": f"{model}/x/synthetic",
        "model_id": f"acme/{model}",
        "model_type": model,
        "phase": "forward",
        "mode": "eager",
        "dtype": "float32",
        "stage": "run",
    } | said


@pytest.fixture
def broken(night):
    """A run in which one operator is missing in two models, another model crashes, and one passes."""
    missing = {"verdict": "UNSUPPORTED_OP", "message": "RuntimeError: operator 'aten::roll.out' is not implemented"}
    return night(
        {
            ALPHA.format("eager"): facts("alpha", **missing),
            BETA.format("eager"): facts("beta", **missing),
            ALPHA.format("compiled"): facts("alpha", verdict="CRASH", signal="SIGSEGV", mode="compiled"),
            BETA.format("compiled"): facts("beta", mode="compiled"),
        }
    )


def test_the_causes_of_a_run_are_listed_the_widest_first(zoo, broken):
    done = zoo("clusters")
    assert done.code == 0, done.both
    head, first, second = done.out.splitlines()
    assert head == f"3 failures of 2 causes in run {broken}"
    assert "2 architectures, 2 cases (eager): UNSUPPORTED_OP aten::roll (forward, float32)" in first
    assert "1 architecture, 1 case (compiled): CRASH SIGSEGV" in second
    told = json.loads(zoo("clusters", broken, "--format", "json").out)
    assert [one["architectures"] for one in told["clusters"]] == [["alpha", "beta"], ["alpha"]]
    assert zoo("clusters", "--limit", "1").out.splitlines()[-1] == "and 1 more"


def test_a_run_without_failures_says_so(zoo, night):
    run = night({ALPHA.format("eager"): facts("alpha")})
    assert zoo("clusters").out == f"no failures in run {run}\n"


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (("--failed-in", "last"), {ALPHA.format("eager"), BETA.format("eager"), ALPHA.format("compiled")}),
        (("--verdict", "CRASH"), {ALPHA.format("compiled")}),
        (("--verdict", "CRASH", "--verdict", "UNSUPPORTED_OP", "beta"), {BETA.format("eager")}),
        (("--failed-in", "last", "--mode", "compiled"), {ALPHA.format("compiled")}),
        (("--failed-in", "last", "--tier", "smoke", "*beta*"), {BETA.format("eager")}),
        (("--cluster", "the first"), {ALPHA.format("eager"), BETA.format("eager")}),
        (("--cluster", "the first", "alpha"), {ALPHA.format("eager")}),
    ],
)
def test_what_failed_is_run_again_and_nothing_else(zoo, broken, models, options, chosen):
    id_of_first = json.loads(zoo("clusters", "--format", "json").out)["clusters"][0]["id"]
    words = [id_of_first if word == "the first" else word for word in options]
    done = zoo("rerun", *words, "--list", models, "--target", "cpu", "--dry-run")
    assert done.code == 0, done.both
    assert set(done.out.split()) == chosen


def test_the_last_verdict_stands_beside_the_new_one(zoo, broken, models):
    done = zoo("rerun", "--verdict", "CRASH", "--list", models, "--target", "cpu")
    assert done.code == 0, done.both
    assert f"CRASH -> PASS  {ALPHA.format('compiled')}" in done.out
    again = zoo("rerun", "--verdict", "CRASH", "--list", models, "--target", "cpu", "--dry-run")
    assert again.out.split() == [ALPHA.format("compiled")], "a rerun is not the last whole run"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name a model, or say --failed-in, --verdict or --cluster"),
        (("--verdict", "CRAHS"), "did you mean CRASH"),
        (("--verdict", "PASS"), "unknown verdict 'PASS'"),
        (("--verdict", "TIMEOUT"), "failed as TIMEOUT"),
        (("--cluster", "0-abc"), f"is no cluster of algorithm {VERSION}"),
        (("--cluster", f"{VERSION}-abc"), f"failed of cluster {VERSION}-abc"),
        (("--failed-in", "2020"), "no run"),
        (("--failed-in", "last", "gamma"), "none of the cases"),
    ],
)
def test_what_names_nothing_is_one_clear_line(zoo, broken, models, options, said):
    done = zoo("rerun", *options, "--list", models, "--target", "cpu", "--dry-run")
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.both


def test_a_model_that_has_left_the_lists_keeps_nobody_from_the_others(zoo, night, models):
    night({ALPHA.format("eager"): facts("alpha", verdict="CRASH"), "old/Old/acme/old/x": facts("old", verdict="CRASH")})
    done = zoo("rerun", "--failed-in", "last", "--list", models, "--target", "cpu", "--dry-run")
    assert (done.code, done.out.split()) == (0, [ALPHA.format("eager")])
    assert "1 cases of run" in done.err


def test_without_a_run_nothing_can_have_failed(zoo, models):
    done = zoo("rerun", "--failed-in", "last", "--list", models, "--target", "cpu")
    assert (done.code, "no run" in done.err) == (2, True)
