"""A wrong kernel in the real torch_tpu, from the run that finds it to the file that shows it."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from harness.cases import Mode, Phase, Weights
from harness.cli import reproducing
from harness.cli.reproducing import run_file, with_fault
from harness.hub import index
from harness.plan import from_ids
from harness.targets import resolve
from harness.triage import repro
from harness.triage.calls import Call, Given
from harness.triage.repro import LINES, Subject
from model_lists import load_list

ROOT = Path(__file__).parents[2]
FAULT = "activation_faults:gelu_by_tanh"
MODEL = "google/vit-base-patch16-224"
CASE = f"vit/ViTForImageClassification/{MODEL}/hub/forward/strict-eager/float32/padded"


@pytest.fixture
def zoo(tmp_path):
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "faults")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = kept | {"ZOO_STORE": str(tmp_path / "store"), "PYTHONPATH": paths}

    def run(*arguments):
        command = [sys.executable, "-m", "harness.cli", *arguments, "--cache", str(tmp_path / "cache")]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)

    return run


@pytest.fixture
def fetched(tmp_path):
    """The model's checkpoint, small, as `zoo prefetch --weights hub` leaves it in the cache."""
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    small["initializer_range"] = 0.3  # as far from linear as a model that has learnt
    config = transformers.ViTConfig(image_size=32, patch_size=8, **small)
    (asked,) = {entry.revision for entry in load_list("smoke") if entry.model_id == MODEL}
    folder = index.files(tmp_path / "cache") / "vit"
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    files = {"config": str(folder / "config.json"), "weights": ("model.safetensors",)}
    index.write(tmp_path / "cache", index.Fetched(Weights.HUB, MODEL, asked, revision=asked, **files))


def test_a_new_failure_gets_a_file_that_fails_with_the_bug_and_passes_without_it(zoo, tmp_path, monkeypatch, fetched):
    run = zoo("rerun", CASE, "--target", "tpu-emulated", "--fault", FAULT, "--one-attempt", "--workers", "1")
    assert run.returncode == 1, run.stdout + run.stderr
    done = zoo("repro", "--new", "--seconds", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    path = Path(done.stdout.strip())
    assert path.parent == next((tmp_path / "store" / "runs").iterdir()) / "repros"
    text = path.read_text()
    assert len(text.splitlines()) < LINES
    sizes = re.search(r"torch.rand\(([\d, ]+)\)", text)[1].split(", ")
    assert math.prod(map(int, sizes)) < 100, "made smaller than the thousands of numbers that the model has there"
    assert "harness" not in text

    assert run_file(path) == "", "the backend itself has no such bug"
    faulty = tmp_path / "faulty.py"
    faulty.write_text(with_fault(text, resolve("tpu-emulated").standalone(Mode.STRICT_EAGER).attach, FAULT))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "faults"))))
    assert run_file(faulty).startswith("wrong: result 0: error ")


def test_a_file_of_its_own_compiles_on_the_emulated_target(tmp_path):
    alone = resolve("tpu-emulated").standalone(Mode.COMPILED)
    file = tmp_path / "alone.py"
    file.write_text(
        f"{alone.attach}{alone.enter}print(compiled(torch.nn.Softmax(-1))(torch.ones(2).to('tpu')).cpu())\n"
    )
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=300)
    assert "tensor([0.5000, 0.5000])" in done.stdout, done.stderr


def test_a_file_does_not_accuse_a_backend_of_weights_that_are_not_tied_there(tmp_path):
    """PyTorch moves each part of a model for itself to a device of another kind."""
    small = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    words = {name: {"tensor": number} for number, name in enumerate(("input_ids", "labels"))}
    inputs = Call("", (Given((1, 5), "int64", 0, 39), Given((1, 5), "int64", 0, 39)), (), words)
    target = resolve("tpu-emulated")
    subject = Subject("BertForMaskedLM", small | {"intermediate_size": 8, "max_position_embeddings": 8}, inputs, 0.0)
    body = repro.of_model(subject, repro.WRONG, target, Mode.STRICT_EAGER, Phase.TRAIN, "float32")
    file = tmp_path / "repro.py"
    file.write_text(repro.Repro("a title", "a fact", target.standalone(Mode.STRICT_EAGER), body).text)
    assert run_file(file) == ""


def test_what_a_compiler_raises_is_told_as_a_row_tells_it(tmp_path):
    """A row names the harness's own function for a compiler where a file names the backend; both mean one failure."""
    end = "raised:\\nRuntimeError: view(): cannot be\\n\\nWhile executing %view\\nSet TORCHDYNAMO_VERBOSE=1"
    file = tmp_path / "repro.py"
    file.write_text(f"import sys\nsys.exit(\"raises BackendCompilerFailed: backend='tpu' {end}\")\n")
    said = run_file(file)
    assert said == "raises BackendCompilerFailed: backend='tpu' raised: RuntimeError: view(): cannot be"
    message = "BackendCompilerFailed: backend='compile' raised: RuntimeError: view(): cannot be"
    row = dict.fromkeys(reproducing.COLUMNS, "") | {"verdict": "COMPILE_ERROR", "message": message, "stage": "compile"}
    (case,) = from_ids([CASE.replace("/hub/", "/synthetic/")], load_list("smoke"))
    attempt = reproducing.Attempt(None, resolve("tpu-emulated"), case, row, "", 1.0)
    assert attempt.is_it(said)
    assert not attempt.is_it(said.replace("view()", "reshape()"))
