"""From a run's rows to expectations, and what of a file of expectations outlives a run."""

from __future__ import annotations

import datetime
from itertools import product
from pathlib import Path

import pytest

from harness.cases import Mode, Verdict
from model_lists.expectations import parse
from results.expected import Outcome, outcome
from results.failures import TRANSIENT, as_file, brought_up_to_date, failures

DAY = datetime.date(2026, 11, 30)
MODES = (Mode.EAGER, Mode.COMPILED)
PHASES = ("forward", "train")
DTYPES = ("float32", "bfloat16", "float16")
PROFILES = ("padded", "single")


def ran(model: str, verdicts=lambda *fields: "PASS", phases=PHASES, modes=MODES, dtypes=DTYPES, profiles=PROFILES):
    """Rows of one model; `verdicts` gives each case's verdict, and perhaps its stage, by its fields."""
    entry = f"{model}/{model.title()}Model/acme/{model}/synthetic"
    rows = []
    for phase, dtype, profile, mode in product(phases, dtypes, profiles, modes):
        verdict, _, stage = verdicts(phase, str(mode), dtype, profile).partition(" ")
        case = f"{entry}/{phase}/{mode}/{dtype}/{profile}"
        fields = {"phase": phase, "mode": str(mode), "dtype": dtype, "profile": profile}
        known = {"case_id": case, "entry_id": entry, "phases": " ".join(PHASES), "message": f"{model}\n\x1bbroke"}
        rows.append(known | fields | {"verdict": verdict, "stage": stage or "run"})
    return rows


def every(text: str):
    return lambda *fields: text


def where(text: str, **fields: str):
    names = ("phase", "mode", "dtype", "profile")
    return lambda *given: text if fields.items() <= dict(zip(names, given, strict=True)).items() else "PASS"


def cases(rows) -> list[str]:
    return [entry.case for entry in failures(rows, MODES, DAY)]


BERT = "bert/BertModel/acme/bert/synthetic"


def test_what_fails_alike_in_all_that_a_model_has_shares_a_glob():
    assert cases(ran("bert", every("CRASH"))) == [f"{BERT}/*"]
    assert cases(ran("bert", where("CRASH", mode="compiled"))) == [f"{BERT}/*/compiled/*"]
    assert cases(ran("bert", where("CRASH", phase="train", dtype="float16"))) == [f"{BERT}/train/*/float16/*"]
    assert cases(ran("bert")) == []


def test_no_glob_speaks_of_what_did_not_run_or_ended_otherwise():
    assert cases(ran("bert", every("CRASH"), dtypes=["float32"])) == [f"{BERT}/*/float32/*"]
    assert cases(ran("bert", every("CRASH"), modes=[Mode.EAGER])) == [f"{BERT}/*/eager/*"]
    assert cases(ran("bert", every("CRASH"), phases=["train"], profiles=["padded"])) == [f"{BERT}/train/*/padded"]
    found = failures(ran("bert", lambda _, mode, *__: "CRASH run" if mode == "eager" else "CRASH compile"), MODES, DAY)
    assert [(one.case, one.stage) for one in found] == [
        (f"{BERT}/*/eager/*", "run"),
        (f"{BERT}/*/compiled/*", "compile"),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_globs_cover_all_failures_and_nothing_else(seed, tmp_path):
    import random

    draw = random.Random(seed)
    rows = ran("bert", lambda *_: draw.choice(["PASS", "CRASH", "TIMEOUT", "CRASH compile"]))
    known = parse(as_file(failures(rows, MODES, DAY), "cpu", "r"), Path("failures.toml"), "cpu")
    known.check(row["case_id"] for row in rows)
    for row in rows:
        assert outcome(Verdict(row["verdict"]), row["stage"], known.about(row["case_id"]))[0] is Outcome.EXPECTED


def test_a_runs_own_failures_are_a_valid_file_whatever_they_say():
    rows = ran("bert", every("FLAKY"))
    for row in rows:
        row["entry_id"] = row["entry_id"].replace("acme", 'a[c]"me')
        row["case_id"] = row["case_id"].replace("acme", 'a[c]"me')
        row["message"] = 'line\nquote " back\\slash \x00 \udcff ' + "x" * 5000
    text = as_file(failures(rows, MODES, DAY), "cpu", "r1")
    (entry,) = parse(text, Path("failures.toml"), "cpu", today=DAY)
    assert entry.covers(rows[0]["case_id"])
    assert entry.expires > DAY
    assert len(entry.reason) <= 300
    assert len(parse(as_file([], "cpu", "r1"), Path("failures.toml"), "cpu")) == 0


FILE = """\
# Known on the target.
target = "cpu"

# bert: tracked elsewhere
[[expect]]
case = "bert/*"   # all of it
verdict = "CRASH"
reason = "a"
added = 2026-01-01

[[expect]]
case = "gpt2/*"
verdict = "TIMEOUT"
reason = "b"
added = 2026-01-01
# after gpt2, before t5

# t5 is slow
[[expect]]
case = "t5/*"
verdict = "TIMEOUT"
link = "https://example.org"
reason = "c"
added = 2026-01-01
"""


def updated(rows, text=FILE, installed=None) -> str:
    def reading(text):
        return parse(text, Path("cpu.toml"), "cpu", installed=installed, today=DAY)

    after = brought_up_to_date(text, reading, rows, MODES, DAY)
    known = reading(after)
    known.check(row["case_id"] for row in rows)
    for row in rows:
        if row["verdict"] not in TRANSIENT:
            assert outcome(Verdict(row["verdict"]), row["stage"], known.about(row["case_id"]))[0] in (
                Outcome.EXPECTED,
                Outcome.EXPIRED,
            )
    assert brought_up_to_date(after, reading, rows, MODES, DAY) == after, "a second time changes nothing"
    return after


def test_where_all_is_as_expected_not_a_byte_changes():
    assert updated(ran("bert", every("CRASH")) + ran("gpt2", every("TIMEOUT"))) == FILE
    assert updated([]) == FILE


def test_an_entry_whose_cases_pass_goes_with_its_comment_and_the_rest_stays():
    after = updated(ran("bert") + ran("gpt2", every("TIMEOUT")))
    head, rest = FILE.index("# bert:"), FILE.index('[[expect]]\ncase = "gpt2')
    assert after == FILE[:head] + FILE[rest:]
    assert updated(ran("t5")) == FILE[: FILE.index("\n# t5 is slow")]


def test_an_entry_that_holds_for_some_is_narrowed_in_its_place_with_its_words():
    after = updated(ran("bert", where("CRASH", mode="compiled")) + ran("gpt2", every("TIMEOUT")))
    assert after == FILE.replace('"bert/*"', f'"{BERT}/*/compiled/*"')
    both = updated(ran("bert", lambda p, m, d, _: "CRASH" if (m == "eager") == (d == "float16") else "PASS"))
    assert both.count('reason = "a"') == 3
    assert both.count("# bert: tracked elsewhere") == 1
    assert both.index(BERT) < both.index("gpt2/*")


def test_what_nobody_knew_comes_last_and_a_changed_failure_is_said_anew():
    after = updated(ran("vit", every("OOM_DEVICE")))
    assert after.startswith(FILE)
    assert after.removeprefix(FILE) == (
        '\n[[expect]]\ncase = "vit/VitModel/acme/vit/synthetic/*"\nverdict = "OOM_DEVICE"\nstage = "run"\n'
        'reason = "vit �broke"\nadded = 2026-11-30\n'
    )
    changed = updated(ran("gpt2", every("CRASH compile")))
    assert "gpt2/*" not in changed
    assert changed.endswith('stage = "compile"\nreason = "gpt2 �broke"\nadded = 2026-11-30\n')


def test_what_a_removed_exception_uncovers_is_brought_up_to_date_too():
    exception = '\n[[expect]]\ncase = "bert/*/train/*"\nverdict = "TIMEOUT"\nreason = "d"\nadded = 2026-01-01\n'
    rows = ran("bert", where("CRASH", phase="forward"))
    after = updated(rows, FILE + exception)
    assert after == FILE.replace('"bert/*"', f'"{BERT}/forward/*"')


def test_the_machine_of_that_day_is_never_expected_and_excuses_nothing():
    for verdict in TRANSIENT:
        assert updated(ran("bert", every(verdict)) + ran("vit", every(verdict))) == FILE


def test_what_is_inert_or_expired_stays():
    inert = FILE.replace('reason = "a"', 'reason = "a"\nversions = "torch<1"')
    assert updated(ran("bert"), inert, {"torch": "2.0"}) == inert
    new = updated(ran("bert", every("TIMEOUT")), inert, {"torch": "2.0"})
    assert 'versions = "torch<1"' in new, "added before, or behind, what speaks of other versions"
    expired = FILE.replace('reason = "a"', 'reason = "a"\nexpires = 2026-02-01')
    assert updated(ran("bert", every("CRASH")), expired) == expired


def test_a_narrower_inert_entry_stays_an_exception_to_what_is_added():
    narrow = f'[[expect]]\ncase = "{BERT}/train/*"\nverdict = "CRASH"\nreason = "x"\nadded = 2026-01-01\n'
    narrow += 'versions = "torch<1"\n'
    after = updated(ran("bert", every("TIMEOUT")), narrow, {"torch": "2.0"})
    assert after.endswith(narrow)
    assert after.startswith(f'[[expect]]\ncase = "{BERT}/*"')


def test_a_file_that_did_not_exist(tmp_path):
    after = updated(ran("bert", every("CRASH")), 'target = "cpu"\n')
    assert after.startswith('target = "cpu"\n\n[[expect]]\ncase = "bert/')
