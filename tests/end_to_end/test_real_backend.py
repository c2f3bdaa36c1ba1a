"""The main job on the real torch_tpu, and real faults in it, from the list to the page."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import results
from harness.cases import Case, Dtype, Evidence, Given, Mode, Phase, Profile, Stage, Verdict
from harness.jobs import JobRunner, Limits
from harness.records import Blame
from harness.targets import resolve
from model_lists import list_path, load_list

HERE = Path(__file__).parent
BERT = "bert/BertModel/sentence-transformers/all-MiniLM-L6-v2/hub"


def case_of(model_type, mode, dtype=Dtype.FLOAT32, phase=Phase.FORWARD):
    entry = next(e for e in load_list("smoke") if e.model_type == model_type and not e.package)
    return Case(entry, phase, mode, dtype, Profile.PADDED)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def runner(cache):
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "faults"), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        with JobRunner(resolve("tpu-emulated"), cache, limits=Limits(run=120)) as runner:
            yield runner


@pytest.fixture(scope="module")
def night(cache, tmp_path_factory):
    """One night over two models: synthetic ViT and the real MiniLM, in every mode, on two workers."""
    folder = tmp_path_factory.mktemp("night")
    lines = list_path("smoke").read_text().splitlines()
    chosen = [line for line in lines[1:] if ",vit," in line or "all-MiniLM-L6-v2" in line]
    (folder / "two.csv").write_text("\n".join([lines[0], *chosen, ""]))
    arguments = ["run", "--list", "two.csv", "--target", "tpu-emulated", "--workers", "2", "--cache", str(cache)]
    arguments += ["--phase", "forward"]
    done = zoo(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def zoo(folder, *arguments):
    command = [sys.executable, "-m", "harness.cli", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"ZOO_STORE": str(folder / "store"), "PYTHONPATH": str(HERE.parents[1])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)


def test_a_night_leaves_a_checked_pass_with_evidence_for_every_case(night):
    rows = results.load(night / "store")
    assert len(rows) == 6
    assert set(rows.verdict) == {"PASS"}
    assert rows.emulated.all()
    assert set(rows.target) == {"tpu-emulated"}
    assert set(rows["mode"]) == {"strict-eager", "defer-and-fuse", "compiled"}
    assert (rows.programs_executed > 0).all()
    assert (rows.leaves > 0).all()
    assert (rows.worst_ratio < 1).all()
    evidence = dict(zip(rows.model_id, rows.evidence, strict=True))
    assert evidence["sentence-transformers/all-MiniLM-L6-v2"] == Evidence.REAL_WEIGHTS
    made_by = dict(zip(rows.model_id, rows.inputs, strict=True))
    assert made_by.pop("sentence-transformers/all-MiniLM-L6-v2") == Given.TOKENIZER
    assert set(made_by.values()) == {Given.DRAWN}
    assert rows.groupby("model_id").weights_sha256.nunique().eq(1).all()
    for stage in ("to_device", "run", "compare"):
        assert (rows[f"seconds_{stage}"] > 0).all()


def test_the_run_says_what_executed_it(night):
    facts = results.provenance_of(store=night / "store")
    assert facts["emulated"] is True
    assert facts["target"]["plugin_sha256"]
    assert facts["target"]["torch_tpu"] == "0.2.0"


def test_the_page_shows_it_as_emulated(night):
    assert zoo(night, "dashboard", "--out", "site").returncode == 0
    page = (night / "site" / "index.html").read_text()
    assert "EMULATED" in page.upper()
    assert "all-MiniLM-L6-v2" in (night / "site" / "data" / "matrix.json").read_text()


def test_a_second_night_reuses_references_and_programs(night, cache, runner):
    record = runner.run(case_of("vit", Mode.STRICT_EAGER))
    assert record.verdict is Verdict.PASS
    assert record.reference_cached is True
    assert record.counters.programs_executed > 0
    assert record.counters.programs_compiled == 0


def test_a_rerun_shows_the_last_verdict_beside_the_new_one(night, cache):
    lane = ("--mode", "defer-and-fuse", "--phase", "forward")
    done = zoo(night, "rerun", "vit", "--list", "two.csv", *lane, "--cache", str(cache))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS -> PASS" in done.stdout


@pytest.mark.parametrize(
    ("fault", "mode", "verdict", "stage", "said"),
    [
        (
            "activation_faults:gelu_by_tanh",
            Mode.STRICT_EAGER,
            Verdict.NUMERIC_MISMATCH,
            Stage.COMPARE,
            "times what is allowed",
        ),
        (
            "activation_faults:gelu_by_tanh",
            Mode.DEFER_AND_FUSE,
            Verdict.NUMERIC_MISMATCH,
            Stage.COMPARE,
            "times what is allowed",
        ),
        (
            "control_faults:activation_is_nan",
            Mode.STRICT_EAGER,
            Verdict.NONFINITE_DEVICE_ONLY,
            Stage.COMPARE,
            "on the target only",
        ),
        ("control_faults:activation_is_missing", Mode.STRICT_EAGER, Verdict.UNSUPPORTED_OP, Stage.RUN, "aten::gelu"),
        ("backend_faults:gelu_out_of_memory", Mode.STRICT_EAGER, Verdict.OOM_HOST, Stage.RUN, "ran out of memory"),
        ("backend_faults:gelu_crashes", Mode.STRICT_EAGER, Verdict.CRASH, Stage.RUN, "SIGSEGV"),
        ("backend_faults:gelu_exits", Mode.DEFER_AND_FUSE, Verdict.EXITED, Stage.RUN, "exit code 3"),
        ("backend_faults:gelu_crashes", Mode.COMPILED, Verdict.CRASH, Stage.COMPILE, "SIGSEGV"),
        ("control_faults:compiles_nothing", Mode.COMPILED, Verdict.NOT_EXECUTED, Stage.COMPARE, "captured nothing"),
        (
            "control_faults:linear_falls_back_to_the_cpu",
            Mode.STRICT_EAGER,
            Verdict.HOST_FALLBACK,
            Stage.COMPARE,
            "aten.linear.default (",
        ),
        (
            "control_faults:norm_falls_back_to_the_cpu",
            Mode.DEFER_AND_FUSE,
            Verdict.HOST_FALLBACK,
            Stage.COMPARE,
            "aten.native_layer_norm.default (",
        ),
        (
            "control_faults:norm_is_compiled_at_every_call",
            Mode.STRICT_EAGER,
            Verdict.RECOMPILES,
            Stage.COMPARE,
            "aten.native_layer_norm.default (",
        ),
        (
            "control_faults:norm_is_compiled_at_every_call",
            Mode.DEFER_AND_FUSE,
            Verdict.RECOMPILES,
            Stage.COMPARE,
            "programs compiled in the third identical call",
        ),
        ("backend_faults:gelu_error_is_no_text", Mode.STRICT_EAGER, Verdict.RUN_ERROR, Stage.RUN, "?"),
        (
            "control_faults:model_is_loaded_on_the_cpu",
            Mode.STRICT_EAGER,
            Verdict.WRONG_DEVICE,
            Stage.TO_DEVICE,
            "are not on tpu",
        ),
        ("backend_faults:no_such_fault", Mode.STRICT_EAGER, Verdict.HARNESS_ERROR, Stage.IMPORT, "no_such_fault"),
    ],
)
def test_a_broken_backend_never_passes(runner, fault, mode, verdict, stage, said):
    runner.processes.fault = fault
    record = runner.run(case_of("vit", mode))
    assert (record.verdict, record.stage) == (verdict, stage), record.message + record.detail
    assert said in record.message
    runner.processes.fault = ""
    assert runner.run(case_of("vit", mode)).verdict is Verdict.PASS, "the next case is untouched"


@pytest.mark.parametrize("mode", [Mode.STRICT_EAGER, Mode.DEFER_AND_FUSE])
@pytest.mark.parametrize(
    ("fault", "model_type", "phase", "where"),
    [
        ("gradient_faults:gelu_slope_by_tanh", "vit", Phase.TRAIN, "grad."),
        ("memory_faults:one_token_is_cached_wrongly", "llama", Phase.GENERATE, "logits."),
    ],
)
def test_what_a_forward_pass_cannot_see_its_phase_does(runner, fault, model_type, phase, where, mode):
    runner.processes.fault = fault
    seen, unseen = (runner.run(case_of(model_type, mode, phase=p)) for p in (phase, Phase.FORWARD))
    runner.processes.fault = ""
    assert seen.verdict is Verdict.NUMERIC_MISMATCH, seen.message + seen.detail
    assert seen.worst.path.startswith(where)
    assert unseen.verdict is Verdict.PASS, unseen.message
    assert runner.run(case_of(model_type, mode, phase=phase)).verdict is Verdict.PASS


@pytest.mark.parametrize(("model_type", "phase"), [*(("llama", p) for p in Phase), ("qwen2_vl", Phase.FORWARD)])
def test_what_the_model_itself_reads_is_no_fallback_and_rounding_in_another_order_no_fault(runner, model_type, phase):
    runner.processes.fault = "backend_faults:sums_are_added_in_any_order"
    record = runner.run(case_of(model_type, Mode.STRICT_EAGER, phase=phase))
    runner.processes.fault = ""
    assert record.verdict is Verdict.PASS, record.message
    assert record.counters.programs_recompiled == 0
    assert record.counters.host_reads > 0, "padding, ends of sequences, places of pictures"


@pytest.mark.parametrize("phase", [Phase.GENERATE, Phase.TRAIN])
def test_every_phase_is_compiled_where_asked(runner, phase):
    record = runner.run(case_of("llama", Mode.COMPILED, phase=phase))
    assert record.verdict is Verdict.PASS, record.message + record.detail
    assert record.counters.graph_breaks is not None
    runner.processes.fault = "control_faults:compiles_nothing"
    record = runner.run(case_of("llama", Mode.COMPILED, phase=phase))
    runner.processes.fault = ""
    assert record.verdict is Verdict.NOT_EXECUTED


@pytest.mark.parametrize(
    ("fault", "mode", "pair", "operator"),
    [
        ("activation_faults:gelu_by_tanh", Mode.STRICT_EAGER, "strict-eager vs cpu", "aten.gelu.default"),
        ("activation_faults:gelu_by_tanh", Mode.DEFER_AND_FUSE, "strict-eager vs cpu", "aten.gelu.default"),
        ("compiler_faults:fused_gelu_by_tanh", Mode.COMPILED, "compiled vs strict-eager", "gelu"),
    ],
)
def test_a_mismatch_says_who_disagrees_and_where_first(runner, fault, mode, pair, operator):
    runner.processes.fault = fault
    record = runner.run(case_of("vit", mode))
    runner.processes.fault = ""
    assert record.verdict is Verdict.NUMERIC_MISMATCH, record.message + record.detail
    blamed = operator, "vit.layers.0.mlp.activation_fn", "float32[2, 17, 128]", record.blame.place, record.blame.why
    assert record.blame == Blame(pair, True, "tensorfloat32", "logits", *blamed)
    assert ("in graph 1" in record.blame.place) == (mode is Mode.COMPILED)
    assert record.blame.why.startswith("NUMERIC_MISMATCH: result 0: error is ")
    assert record.message.endswith(f"first to fail: {operator} in vit.layers.0.mlp.activation_fn")
    assert record.flips == 0


def test_a_crash_names_the_operator_that_was_running(runner):
    runner.processes.fault = "backend_faults:gelu_crashes"
    record = runner.run(case_of("vit", Mode.DEFER_AND_FUSE))
    runner.processes.fault = ""
    assert (record.blame.operator, record.blame.module) == ("aten.gelu.default", "vit.layers.0.mlp.activation_fn")
    assert (record.blame.given, "SIGSEGV" in record.blame.why) == ("float32[2, 17, 128]", True)


def test_the_operator_is_not_sought_for_a_failure_that_is_expected(runner):
    runner.processes.fault, runner.again = "backend_faults:gelu_crashes", lambda record: False
    record = runner.run(case_of("vit", Mode.STRICT_EAGER))
    runner.processes.fault, runner.again = "", None
    assert (record.verdict, record.blame.operator) == (Verdict.CRASH, "")
    assert "first to fail" not in record.message


def test_the_module_is_blamed_where_each_of_its_operators_is_right(runner):
    runner.processes.fault = "backend_faults:gelu_is_by_tanh_where_compiled"
    record = runner.run(case_of("vit", Mode.COMPILED))
    runner.processes.fault = ""
    assert record.verdict is Verdict.NUMERIC_MISMATCH
    assert (record.blame.operator, record.blame.module) == ("", "vit.layers.0.mlp.activation_fn")
    assert record.message.endswith("operators fails alone, but the module vit.layers.0.mlp.activation_fn does")


def test_a_target_that_disagrees_with_itself_is_said_to(runner):
    runner.processes.fault = "backend_faults:gelu_differs_from_run_to_run"
    record = runner.run(case_of("vit", Mode.STRICT_EAGER))
    runner.processes.fault = ""
    assert record.verdict is Verdict.NONDETERMINISTIC, record.message + record.detail
    assert record.blame.repeats is False


@pytest.mark.parametrize("mode", [Mode.STRICT_EAGER, Mode.COMPILED])
def test_a_router_that_chooses_wrongly_is_no_toss_up(runner, mode):
    runner.processes.fault = "backend_faults:next_best_experts"
    record = runner.run(case_of("mixtral", mode))
    runner.processes.fault = ""
    assert record.verdict is Verdict.NUMERIC_MISMATCH, record.message + record.detail
    assert (record.flips, record.blame.precision) == (0, "")


def test_a_hang_ends_at_its_limit_with_the_stack_it_hung_in(runner):
    runner.processes.fault = "backend_faults:gelu_hangs"
    limits, runner.processes.limits = runner.processes.limits, Limits(run=4)
    record = runner.run(case_of("vit", Mode.STRICT_EAGER))
    runner.processes.fault, runner.processes.limits = "", limits
    assert (record.verdict, record.stage) == (Verdict.TIMEOUT, Stage.RUN)
    assert "modeling_vit" in record.log


def test_a_model_that_cannot_be_built_is_not_the_backends_failure(runner):
    case = case_of("vit", Mode.STRICT_EAGER)
    missing = dataclasses.replace(case, entry=dataclasses.replace(case.entry, model_class="NoSuchModel"))
    record = runner.run(missing)
    assert record.verdict is Verdict.BUILD_ERROR
    assert "NoSuchModel" in record.message


@pytest.mark.parametrize("name", ["reference.pt", "inputs.pt", "model.safetensors", "config.json", "meta.json"])
@pytest.mark.parametrize("damage", [lambda b: b[:100], lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:]])
def test_a_damaged_cache_is_made_again(runner, cache, name, damage):
    case = case_of("vit", Mode.STRICT_EAGER)
    runner.run(case)
    for file in cache.rglob(name):
        file.write_bytes(damage(file.read_bytes()))
    runner.references.forget()
    record = runner.run(case)
    assert (record.verdict, record.reference_cached) == (Verdict.PASS, False), record.message


@pytest.mark.parametrize("victim", ["target_server", "model"])
def test_a_server_that_is_killed_between_cases_costs_none(runner, victim):
    case = case_of("vit", Mode.STRICT_EAGER)
    runner.run(case)
    processes = runner.processes
    pid = processes.model[2].pid if victim == "model" else processes.target_server.process.pid
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    record = runner.run(case)
    assert record.verdict is Verdict.PASS, record.message


def test_bfloat16_is_judged_by_its_own_noise(runner):
    record = runner.run(case_of("vit", Mode.STRICT_EAGER, Dtype.BFLOAT16))
    assert record.verdict is Verdict.PASS, record.message
    assert record.worst.dtype == "bfloat16"


def test_the_harness_can_be_pointed_at_itself(cache):
    with JobRunner(resolve("cpu"), cache) as runner:
        record = runner.run(case_of("vit", Mode.EAGER))
    assert record.verdict is Verdict.PASS
    assert record.emulated is False
    assert record.worst.ratio < 0.2
    json.dumps(dataclasses.asdict(record))
