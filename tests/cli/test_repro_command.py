"""`zoo repro` where there is nothing to show; what it shows is tested on the real backend (tests/end_to_end)."""

import pytest

ALPHA = "alpha/AlphaModel/acme/alpha/synthetic/forward/eager/float32/padded"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "name a case, or say --new"),
        ((ALPHA, "--new"), "name a case, or say --new"),
        ((ALPHA,), f"{ALPHA} passed in run "),
        ((ALPHA.replace("eager", "compiled"),), "`zoo rerun` makes one"),
        (("--new", "--to", "one.py"), "several files"),
        (("--new", "--budget", "soon"), "is not a time"),
        ((ALPHA, "--run", "2020-01-01"), "no run"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(zoo, night, arguments, why):
    night({ALPHA: {}})
    done = zoo("repro", *arguments)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert "Traceback" not in done.err


def test_a_run_without_new_failures_needs_no_files(zoo, night):
    failing = {"verdict": "RUN_ERROR", "message": "RuntimeError: no", "entry_id": "alpha", "phase": "forward"}
    night({ALPHA: failing})
    night({ALPHA: failing})
    done = zoo("repro", "--new")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("0 of 0 new failures of run ")
