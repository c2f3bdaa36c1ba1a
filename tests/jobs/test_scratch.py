"""Folders for temporary files: whatever ends their owners, they go."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.scratch import scratch

OWNER = """
import sys
from harness.scratch import scratch
with scratch() as folder:
    (folder / "left").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path, monkeypatch):
    """A process with such a folder in `tmp_path`, and the folder's name."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], env=os.environ | {"TMPDIR": str(tmp_path)}, text=True, **pipe
    ) as process:
        yield process, tmp_path / process.stdout.readline().strip()
        process.kill()


def test_what_a_killed_owner_leaves_is_removed_by_the_next_one_and_what_a_living_one_has_is_not(owner, tmp_path):
    process, folder = owner
    with scratch() as mine:
        assert (folder / "left").exists()
    assert not mine.exists()
    process.kill()
    process.wait()
    with scratch() as mine:
        assert list(tmp_path.iterdir()) == [mine]


def test_folders_of_others_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "zoo-of-another-program").mkdir()
    with scratch():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["zoo-of-another-program"]
