"""Throw-away environments: the one that is running, with a single distribution at another version.

PyTorch alone would take gigabytes and minutes for each version tried, so an environment is not installed anew: it is an
empty one that finds everything in the running one's folders, behind its own, into which that one distribution goes
without its dependencies. So all else is as it is now. What follows from that:

- What the version requires of others may not hold; `Environment.conflicts` tells what pip says of it. On demand pip
  installs what it requires too, where what is there does not do.
- Top-level modules that only the version of the running environment has stay visible.
- Compiled extensions of others (torch_tpu's, where PyTorch is varied) are those built for the version that is here.
- What PYTHONPATH names comes first, as always. An environment in which that hides the version is refused.

Everything is asked of pip, so its own configuration says where from.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.triage.candidates import Candidate

_log = logging.getLogger(__name__)
_HARNESS = Path(__file__).resolve().parents[2]
_REMOVAL_SECONDS = 10.0
_LAST_WRITE_SECONDS = 0.5
"""Within which a program that a backend keeps in the background is written, folders included."""
_QUIETLY = ("--quiet", "--no-compile", "--no-warn-script-location")
_ELSEWHERE = """
import sys
from importlib import metadata, util
from pathlib import Path
own, found = Path(sys.argv[2]).resolve(), metadata.distribution(sys.argv[1])
places = [str(found.locate_file(""))]
for file in found.files or ():
    if file.parts[1:] == ("__init__.py",) or (len(file.parts) == 1 and file.suffix == ".py"):
        places.append(util.find_spec(file.parts[0].removesuffix(".py")).origin)
print(*(place for place in places if not Path(place).resolve().is_relative_to(own)), sep="\\n")
"""
"""Prints where a distribution and its modules would be imported from, as far as that is not a certain folder."""


class EnvironmentFailed(RuntimeError):
    """pip could not do what it was asked for; the message is one line, in its own words."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment: its interpreter, a folder that goes with it, and what pip finds wrong in it but not in ours."""

    python: Path
    folder: Path
    conflicts: tuple[str, ...]


@contextmanager
def throw_away(candidate: Candidate, dependencies: bool = False) -> Iterator[Environment]:
    """An environment with the candidate, and with what it requires where asked for `dependencies`; removed in the end.

    Raises EnvironmentFailed.
    """
    with _scratch() as scratch:
        folder = scratch / "environment"
        venv.EnvBuilder(symlinks=True).create(folder)
        python, packages = folder / "bin" / "python", next(folder.glob("lib/python*/site-packages"))
        (packages / "running.pth").write_text("".join(_lines()), encoding="utf-8")
        # Whatever is there already is left alone, and a user's pin of the very thing that is varied says nothing here.
        alone = ("--no-deps", "--ignore-installed", candidate.requirement)
        _pip("install", *_QUIETLY, *alone, python=python, PIP_CONSTRAINT=os.devnull)
        if dependencies:
            _pip("install", *_QUIETLY, candidate.requirement, python=python)
        _require(candidate, python, packages)
        conflicts = [line for line in _conflicts(python) if line not in _own_conflicts()]
        yield Environment(python, scratch, tuple(conflicts))


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder that is removed, also where a process that is just ending still writes into it."""
    scratch = Path(tempfile.mkdtemp(prefix="zoo-bisect-"))
    try:
        yield scratch
    finally:
        end = time.monotonic() + _REMOVAL_SECONDS
        while scratch.exists() and time.monotonic() < end:
            shutil.rmtree(scratch, ignore_errors=True)
            time.sleep(_LAST_WRITE_SECONDS)
        if scratch.exists():
            _log.warning("could not be removed: %s", scratch)


def released(name: str, prereleases: bool) -> list[str]:
    """Versions of a distribution that pip would install into this Python. Raises EnvironmentFailed."""
    said = _pip("index", "versions", name, *["--pre"] * prereleases)
    found = re.search(r"^Available versions: (.+)$", said, re.MULTILINE)
    if found is None:
        raise EnvironmentFailed(f"pip index versions {name}: it names no versions")
    return found[1].split(", ")


def _lines() -> Iterator[str]:
    """Lines of a .pth file that make another environment find what this one has: first the harness that is running."""
    yield f"{_HARNESS}\n"
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    for folder in folders:
        yield f"import site; site.addsitedir({folder!r})\n"  # unlike a bare path, minds the .pth files there


def _require(candidate: Candidate, python: Path, packages: Path) -> None:
    """Raise EnvironmentFailed where something else than what was installed would be imported."""
    command = [str(python), "-c", _ELSEWHERE, candidate.name, str(packages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or done.stdout.strip():
        where = done.stdout.split("\n")[0] or done.stderr.strip().splitlines()[-1]
        raise EnvironmentFailed(f"{candidate} is hidden by {where}: run this elsewhere, or without PYTHONPATH")


def _conflicts(python: Path) -> list[str]:
    return _pip("check", python=python, refused=True).splitlines()


@functools.cache
def _own_conflicts() -> frozenset[str]:
    return frozenset(_conflicts(Path(sys.executable)))


def _pip(*arguments: str, python: Path | None = None, refused: bool = False, **settings: str) -> str:
    """What this environment's pip prints; it acts on that of `python`, this one where None.

    Raises EnvironmentFailed where it fails, unless what it was asked for may be `refused`.
    """
    into = ["--python", str(python)] if python else []
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *into, *arguments]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode and not (refused and done.stdout):
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        why = next((line for line in said if line.startswith("ERROR:")), said[-1])
        raise EnvironmentFailed(f"pip {arguments[0]}: {why.removeprefix('ERROR:').strip()}")
    return done.stdout
