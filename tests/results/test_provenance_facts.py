from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import results
from results.provenance import collect


def test_facts_are_plain_json_with_versions_and_list_hashes(tmp_path: Path) -> None:
    listed = tmp_path / "smoke.csv"
    listed.write_text("model_id\nbert\n")
    facts = collect([listed], {"target": "cpu", "modes": ["eager"]})
    assert json.loads(json.dumps(facts)) == facts
    assert facts["lists"] == {"smoke.csv": hashlib.sha256(listed.read_bytes()).hexdigest()}
    assert facts["settings"] == {"target": "cpu", "modes": ["eager"]}
    assert facts["packages"]["torch"].startswith("2.")
    assert facts["machine"]["cores"] >= 1
    assert facts["harness_revision"]


def test_flags_are_kept_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=https://user:hunter2@host/x")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--a=1")
    for name in ("HF_TOKEN", "TORCH_HUB_TOKEN", "XLA_API_KEY", "TPU_PASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    facts = collect([], {})
    assert facts["environment"]["XLA_FLAGS"] == "--xla_dump_to=https://host/x"
    assert facts["environment"]["LIBTPU_INIT_ARGS"] == "--a=1"
    assert "hunter2" not in json.dumps(facts)


def test_unreadable_list_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(results.StoreError, match=r"cannot read the list .*none\.csv: No such file"):
        collect([tmp_path / "none.csv"], {})
