from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest

import dashboards
import results
from dashboards.claims import claims
from harness.cases import Dtype, Mode, Stage, Verdict
from harness.records import Blame


@pytest.fixture
def data(tmp_path: Path) -> Callable[[str], Any]:
    """Builds the site and reads one of its data files as a browser would."""

    def read(name: str) -> Any:
        dashboards.build(tmp_path / "store", tmp_path / "site")
        text = (tmp_path / "site" / "data" / f"{name}.js").read_text(encoding="utf-8")
        given, value = text.removeprefix("zoo.give(").removesuffix("\n);\n").split(",\n", 1)
        assert json.loads(given) == name
        return json.loads(value)

    return read


def test_every_planned_case_has_a_cell(data, write_run, make_case, make_record) -> None:
    cases = [make_case(f"model{number}", mode) for number in range(20) for mode in (Mode.EAGER, Mode.COMPILED)]
    write_run([make_record(case) for case in cases[:30]], [case.id for case in cases[30:]])
    matrix = data("matrix")
    words = [verdict["verdict"] for verdict in data("vocabulary")["verdicts"]]
    told = [words[number] for number in matrix["verdict"]]
    assert (told.count("PASS"), told.count("NOT_REPORTED"), len(told)) == (30, 10, 40)
    assert [column["mode"] for column in matrix["columns"]] == ["eager", "compiled"]
    assert matrix["ratio"].count(0.4) == 30


def test_a_case_that_is_not_planned_has_none(data, write_run, make_case, make_record) -> None:
    write_run([make_record(make_case("bert")), make_record(make_case("llama", dtype=Dtype.BFLOAT16))])
    verdict = data("matrix")["verdict"]
    assert [number < 0 for number in verdict] == [False, True, True, False]


def test_history_is_told_as_transitions(data, write_run, make_case, make_record) -> None:
    case, other = make_case("bert"), make_case("llama")
    for verdict in (Verdict.PASS, Verdict.PASS, Verdict.CRASH, Verdict.CRASH):
        write_run([make_record(case, verdict), make_record(other)])
    words = [verdict["verdict"] for verdict in data("vocabulary")["verdicts"]]
    (told,) = data("architectures/bert")["models"][0]["cases"]
    assert [(night, words[number]) for night, number in told["history"]] == [(0, "PASS"), (2, "CRASH")]
    assert told["ratios"] == [0.4, 0.4, None, None]
    assert data("matrix")["changed"] == [2, -1]


def test_details_carry_error_leaf_stages_and_rerun(data, write_run, make_case, make_record) -> None:
    bad, dead = make_case("bert"), make_case("it's")
    write_run(
        [
            make_record(bad, Verdict.NUMERIC_MISMATCH),
            make_record(dead, Verdict.CRASH, message="killed", detail="Traceback\nend", log="last", signal="SIGSEGV"),
        ]
    )
    (told,) = data("models/0")["cases"]
    assert told["id"] == bad.id
    assert (told["worst"]["path"], told["worst"]["index"], told["worst"]["error"]) == (
        "last_hidden_state",
        [1, 0, 3],
        2.5e-6,
    )
    assert told["share"] == "250 %"
    assert dict(zip(data("vocabulary")["stages"], told["seconds"], strict=False))["run"] == 0.5
    assert told["rerun"] == f"zoo rerun {bad.id} --target tpu-emulated"
    file = data("models/1")
    (told,) = file["cases"]
    assert (told["message"], told["detail"], told["log"]) == ("killed", "Traceback\nend", "last")
    assert dict(zip(file["labels"], told["facts"], strict=False))["signal"] == "SIGSEGV"
    assert told["stage"] == Stage.RUN
    assert told["rerun"].startswith("zoo rerun 'it'")


def test_the_operator_to_fail_first_is_told_with_its_module(data, write_run, make_case, make_record) -> None:
    bad, unknown = make_case("bert"), make_case("llama")
    write_run(
        [
            make_record(bad, Verdict.NUMERIC_MISMATCH, blame=Blame(operator="aten.gelu.default", module="layer.1.act")),
            make_record(unknown, Verdict.NUMERIC_MISMATCH, blame=Blame(operator="aten.gelu.default")),
        ]
    )
    files = [data(f"models/{number}") for number in range(2)]
    told = [dict(zip(file["labels"], file["cases"][0]["facts"], strict=False))["first to fail"] for file in files]
    assert told == ["aten.gelu.default in layer.1.act", "aten.gelu.default"]


def test_names_that_no_file_can_have_get_another(data, write_run, make_case, make_record, tmp_path: Path) -> None:
    write_run([make_record(make_case(name)) for name in ("..", "Bert", "bert", "a b", "q.5")])
    files = {one["name"]: one["file"] for one in data("matrix")["architectures"]}
    assert (files["Bert"], files["q.5"]) == ("Bert", "q_5")
    assert all(files[name].startswith("x-") for name in ("..", "bert", "a b"))
    assert all((tmp_path / "site" / "data" / "architectures" / f"{file}.js").is_file() for file in files.values())


def test_machines_find_the_same_as_json(data, write_run, make_case, make_record, tmp_path: Path) -> None:
    case = make_case()
    write_run([make_record(case)])
    write_run([make_record(case, Verdict.CRASH)])
    folder = tmp_path / "site" / "data"
    matrix = data("matrix")
    assert json.loads((folder / "matrix.json").read_text()) == matrix
    changes = json.loads((folder / "changes.json").read_text())["changes"]
    assert [(one["became"], one["before"], one["after"]) for one in changes] == [("regressed", "PASS", "CRASH")]
    assert json.loads((folder / "summary.json").read_text())["zoo"]["whole"] == 1
    assert "0 of 1 pass" in (tmp_path / "site" / "badges" / "bert.svg").read_text()


def test_gains_are_of_cases_that_pass_both_ways_and_are_no_twins() -> None:
    def row(name: str, mode: Mode, latency: float, **changes: object) -> dict[str, object]:
        same = {"phase": "forward", "dtype": "float32", "profile": "padded", "twin_of": "", "verdict": "PASS"}
        measured = {"latency_seconds": latency, "peak_device_bytes": None, "peak_host_bytes": None}
        return {"entry_id": name, "mode": mode.value, **same, **measured, **changes}

    strict, fused = Mode.STRICT_EAGER, Mode.DEFER_AND_FUSE
    (told,) = claims(
        [
            *(row("a", strict, 0.4), row("a", fused, 0.1)),
            *(row("b", strict, 0.1), row("b", fused, 0.2)),
            *(row("c", strict, 9.0, verdict="CRASH"), row("c", fused, 1.0)),
            *(row("d", strict, 9.0, twin_of="a"), row("d", fused, 1.0, twin_of="a")),
        ]
    )
    assert (told["cases"], told["median"], told["claimed"], told["worse"]) == (2, "2.25×", "50 %", "50 %")


def test_the_feed_names_what_regressed(data, write_run, make_case, make_record, tmp_path: Path) -> None:
    broke, was = make_case("bert"), make_case("llama")
    write_run([make_record(broke), make_record(was, Verdict.CRASH)])
    write_run([make_record(broke, Verdict.RUN_ERROR), make_record(was, Verdict.RUN_ERROR)])
    data("vocabulary")
    feed = xml.fromstring((tmp_path / "site" / "feed.xml").read_text(encoding="utf-8"))
    (entry,) = feed.iter("{http://www.w3.org/2005/Atom}entry")
    assert entry.findtext("{http://www.w3.org/2005/Atom}title") == "1 regressed on tpu-emulated"
    assert broke.id in entry.findtext("{http://www.w3.org/2005/Atom}content")


def test_operators_in_the_way_have_one_name_and_the_cells_that_name_them(
    data, write_run, make_case, make_record, tmp_path: Path
) -> None:
    def case(name: str, verdict: Verdict, message: str = "", **changes: object) -> Any:
        return make_record(make_case(name), verdict, message=message, **changes)

    write_run(
        [
            case("a", Verdict.UNSUPPORTED_OP, "RuntimeError: aten::gelu.out and aten::tanh are not implemented"),
            case("b", Verdict.NUMERIC_MISMATCH, blame=Blame(operator="aten.gelu.default"), operators=("gelu", "add_")),
            case("c", Verdict.HOST_FALLBACK, "copied without need: aten.gelu.default (12), aten.sum.dim_IntList (1)"),
            case("d", Verdict.RECOMPILES, "3 programs compiled in the third identical call: aten.sum.default (3)"),
            case("e", Verdict.PASS, "aten.gelu.default (12)", operators=("gelu",)),
            case("f", Verdict.CRASH, "Check failed in aten::gelu", operators=("gelu",)),
        ]
    )
    found = {one["name"]: one["cells"] for one in data("operators")["operators"]}
    assert list(found.items()) == [
        ("aten::gelu", {"missing": [0], "fails": [1], "copies": [2]}),
        ("aten::sum", {"copies": [2], "compiles": [3]}),
    ]
    called = {one["name"]: one["models"] for one in data("calls")["operators"]}
    assert called == {"aten::add_": [1], "aten::gelu": [1, 4, 5]}
    page = (tmp_path / "site" / "operators.html").read_text(encoding="utf-8")
    assert "4 of the 5 cases that do not pass name one" in page
    assert "the code of 3 of 6 models" in page


def test_the_last_run_of_another_target_is_offered_with_its_own_columns(
    data, write_run, make_case, make_record, tmp_path: Path
) -> None:
    case, other = make_case("bert"), make_case("bert", Mode.EAGER)
    write_run([make_record(other)], target="cpu")
    run = write_run(
        [make_record(other, Verdict.CRASH, message="boom at 0x12"), make_record(make_case("t5"))], target="cpu"
    )
    journal = run.path / "journal" / "gw0.jsonl"
    journal.write_text(journal.read_text().replace('"CRASH"', '"MELTED"'))
    write_run([make_record(other, Verdict.CRASH)], target="gpu", fault="m:f")
    damaged = write_run([make_record(other)], target="xla")
    (damaged.path / "run.json").write_text("{")
    write_run([make_record(case)])
    offered = data("runs")["runs"]
    assert [one["target"] for one in offered] == ["tpu-emulated", "cpu"]
    side, words = data("runs/1"), [one["verdict"] for one in data("vocabulary")["verdicts"]]
    assert [column["mode"] for column in side["columns"]] == ["eager"]
    assert [words[number] for number in side["verdict"]] == ["MELTED"]
    assert (side["failure"], side["elsewhere"]) == ([1], 1)
    assert f"{damaged.path / 'run.json'} is damaged" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_a_case_without_a_result_has_its_own_rerun_command(data, write_run, make_case, make_record) -> None:
    silent = make_case("bert")
    write_run([make_record(make_case("t5"))], [silent.id])
    (told,) = data("architectures/bert")["models"][0]["cases"]
    assert told["rerun"] == f"zoo rerun {silent.id} --target tpu-emulated"


@pytest.mark.parametrize("emulated", [True, False])
def test_the_card_says_what_the_front_page_does(
    data, write_run, make_case, make_record, tmp_path: Path, emulated: bool
) -> None:
    target = "tpu-emulated" if emulated else "tpu"
    records = [make_record(make_case("bert")), make_record(make_case("t5"), Verdict.CRASH)]
    run = write_run(records, target=target)
    run.amend({"emulated": emulated})
    data("vocabulary")
    card = " ".join("".join(xml.parse(tmp_path / "site" / "card.svg").getroot().itertext()).split())
    assert f"50 % of the zoo works on {target}" in card
    assert "✓ 1 pass" in card
    assert ("no TPU took part" in card) == emulated
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert f'<meta property="og:title" content="50 % of the zoo works on {target}">' in page


def test_rows_that_come_in_meanwhile_shift_nothing(write_run, make_case, make_record, tmp_path: Path) -> None:
    records = [
        make_record(make_case(f"m{n:03}"), Verdict.UNSUPPORTED_OP, message=f"aten::op{n}.out is not implemented")
        for n in range(200)
    ]
    run = write_run(records[-1:], [record.case.id for record in records[:-1]])
    plan = run.path / "plan.txt"
    plan.write_text("".join(f"{record.case.id}\n" for record in records))
    built = threading.Event()

    def go_on() -> None:  # from the end of the plan, so that each row comes to stand before those that there are
        with run.journal("gw1") as journal:
            for record in records[-2::-1]:
                journal.append(results.row(record, run.id))
                if built.wait(0.002):
                    return

    worker = threading.Thread(target=go_on)
    worker.start()
    try:
        dashboards.build(tmp_path / "store", tmp_path / "site")
    finally:
        built.set()
        worker.join()
    files = [json.loads(path.read_text()) for path in sorted((tmp_path / "site/data/architectures").glob("*.json"))]
    assert len(files) == 200
    for file in files:
        (model,) = file["models"]
        text = (tmp_path / "site" / "data" / f"{model['file']}.js").read_text()
        told = [case["id"] for case in json.loads(text.split(",\n", 1)[1].removesuffix("\n);\n"))["cases"]]
        assert told in ([], [model["cases"][0]["id"]])
