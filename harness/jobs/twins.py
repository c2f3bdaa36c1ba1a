"""Structural twins: cases of different entries that are the same job byte for byte. One runs, each is reported."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

from harness import checkpoints
from harness.cases import Case, Group
from harness.files import write_whole
from harness.likeness import relevant
from harness.records import Record


def structure(model_class: str, checkpoint: Path, weights_sha256: str, inputs_sha256: str) -> str:
    """sha256 hex of all that a model's outputs depend on: its class, config, weights and inputs. Raises OSError."""
    config = {}  # a GGUF file's is among what its hash covers
    if not checkpoints.is_gguf(checkpoint):
        config = json.loads(checkpoints.config_of(checkpoint).read_text(encoding="utf-8"))
    parts = [model_class, relevant(config), weights_sha256, inputs_sha256]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Twins:
    """The records of a run's finished jobs by what they depend on, shared by its workers through a private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "twins"

    def of(self, case: Case, structure_sha256: str, fault: str) -> Record | None:
        """The record of another entry's case that was the same job, None where there is none."""
        try:
            record = pickle.loads(self._path(case, structure_sha256, fault).read_bytes())
        except FileNotFoundError:
            return None
        return None if record.case.id == case.id else record

    def keep(self, record: Record, fault: str) -> None:
        """Let twins of the record's case find it. What speaks of the machine that day speaks of no twin."""
        if record.verdict.group not in (Group.PASS, Group.BACKEND) or record.twin_of:
            return
        write_whole(self._path(record.case, record.structure_sha256, fault), pickle.dumps(record))

    def _path(self, case: Case, structure_sha256: str, fault: str) -> Path:
        words = (structure_sha256, case.phase, case.mode, case.dtype, fault)
        return self._folder / hashlib.sha256("\0".join(words).encode()).hexdigest()
