"""Same seed, same bytes: a model and its inputs do not depend on the process, the order or the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import inputs
from harness.cases import Profile
from harness.models import build, load, registered

ROOT = Path(__file__).parents[2]
TYPES = ("deepseek_v3", "mamba2", "qwen3_next", "t5", "swin", "qwen2_vl", "wav2vec2", "patchtst")
"""Experts, state spaces, linear attention, an encoder with a decoder, pictures, pictures in text, sound, series."""
SEED = 3


def hashes(model_type: str, folder: Path, seed: int = SEED) -> list[str]:
    """sha256 of the weights and of the inputs of each profile."""
    entry = registered.entry(registered.base_pairs()[model_type])
    built = build(entry, folder / model_type, seed)
    config = load(entry, built.folder, "float32", "cpu").config
    made = [inputs.make(entry, config, built.folder, profile, seed) for profile in Profile]
    return [built.weights_sha256, *map(inputs.digest, made)]


def test_another_process_makes_the_same_bytes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from test_same_bytes import TYPES, hashes\n"
        "for name in reversed(TYPES):\n"
        "    print(name, *hashes(name, Path(sys.argv[1])))\n"
    )
    paths = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "there")],
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    there = {name: printed for name, *printed in map(str.split, done.stdout.splitlines())}
    assert there == {name: hashes(name, tmp_path / "here") for name in TYPES}


def test_another_seed_makes_others(tmp_path):
    one, other = hashes("t5", tmp_path / "one"), hashes("t5", tmp_path / "other", SEED + 1)
    assert all(first != second for first, second in zip(one, other, strict=True))
