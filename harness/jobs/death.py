"""From an error or a death to a verdict: the one place that says whose failure it was."""

from __future__ import annotations

import errno
import re
from typing import Any

from harness.cases import Group, Stage, Verdict
from harness.jobs.supervisor import Outcome
from harness.targets.base import Target

_BY_TYPE = {
    "BuildError": Verdict.BUILD_ERROR,
    "CheckpointMissing": Verdict.CHECKPOINT_MISSING,
    "CodeNotTrusted": Verdict.CODE_NOT_TRUSTED,
    "DependencyMissing": Verdict.DEPENDENCY_MISSING,
    "InputError": Verdict.INPUT_ERROR,
    "MemoryError": Verdict.OOM_HOST,
    "OutputError": Verdict.HARNESS_ERROR,
    "TargetUnavailable": Verdict.BACKEND_UNAVAILABLE,
    "WrongDevice": Verdict.WRONG_DEVICE,
}
_ON_CPU = {
    Stage.IMPORT: Verdict.BUILD_ERROR,
    Stage.FETCH: Verdict.BUILD_ERROR,
    Stage.BUILD: Verdict.BUILD_ERROR,
    Stage.INPUTS: Verdict.INPUT_ERROR,
    Stage.REFERENCE: Verdict.REFERENCE_ERROR,
}
_ON_TARGET = {
    Stage.TO_DEVICE: Verdict.LOAD_ERROR,
    Stage.COMPILE: Verdict.COMPILE_ERROR,
    Stage.RUN: Verdict.RUN_ERROR,
    Stage.COMPARE: Verdict.HARNESS_ERROR,
}

_HOST_MEMORY = re.compile(r"std::bad_alloc|pthread_create\(\) failed|DefaultCPUAllocator: (can't|not enough)")
_FATAL = re.compile(r"Check failed: .*|terminate called .*|what\(\): .*|Fatal Python error: .*")
"""What a process says of its own death: absl and glog, the C++ runtime, Python's fault handler. The first counts."""


def of_error(error: dict[str, Any], stage: Stage, target: Target | None) -> Verdict:
    """The verdict for an exception that a job reported; `target` is None on the CPU side."""
    if error["errno"] in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "(os error 28)" in error["detail"]:
        return Verdict.DISK_FULL
    if _HOST_MEMORY.search(error["detail"]):
        return Verdict.OOM_HOST
    if error["ours"]:
        return Verdict.HARNESS_ERROR
    if error["type"] in _BY_TYPE:
        return _BY_TYPE[error["type"]]
    if target is None:
        return _ON_CPU.get(stage, Verdict.HARNESS_ERROR)
    return target.diagnose(error["detail"], stage) or _ON_TARGET.get(stage, Verdict.HARNESS_ERROR)


def of_death(outcome: Outcome, target: Target | None) -> tuple[Verdict, str]:
    """The verdict for a process that delivered no result, and one line of why."""
    stage = outcome.stage
    if outcome.overdue is not None:
        what, verdict = f"stage {stage} exceeded its limit of {outcome.overdue:g} s", Verdict.TIMEOUT
    elif outcome.garbage:
        what, verdict = f"wrote something else than a message in stage {stage}: {outcome.garbage}", Verdict.EXITED
    elif outcome.taken:
        how = f"stopped from outside by {outcome.signal}" if outcome.signal else "lost with its server"
        what, verdict = f"was {how} in stage {stage}", Verdict.HARNESS_ERROR
    elif _HOST_MEMORY.search(outcome.log):
        how = outcome.signal or f"exit code {outcome.exit_code}"
        what, verdict = f"was refused memory by the host, and ended by {how} in stage {stage}", Verdict.OOM_HOST
    elif outcome.signal == "SIGKILL":
        why = "the kernel kills where memory ran out" if outcome.kernel_kills else "for lack of memory, perhaps"
        what, verdict = f"ended by SIGKILL in stage {stage}: {why}", Verdict.OOM_HOST
    elif outcome.signal:
        what, verdict = f"killed by {outcome.signal} in stage {stage}", Verdict.CRASH
    else:
        code = "unknown status" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
        what, verdict = f"ended without a result in stage {stage} ({code})", Verdict.EXITED
    if verdict.group in (Group.ENVIRONMENT, Group.HARNESS):
        return verdict, what
    if target is None:
        return _ON_CPU.get(stage, Verdict.HARNESS_ERROR), f"the reference process {what}"
    if verdict is Verdict.CRASH:
        known = target.diagnose(outcome.log, stage)
        if known is not None and known.group is Group.ENVIRONMENT:
            verdict = known
    fatal = _FATAL.search(outcome.log) if verdict is Verdict.CRASH else None
    return verdict, f"{what}{f': {fatal[0][:400]}' if fatal else ''}"


def one_line(error: dict[str, Any]) -> str:
    """An error in one line: its type and the first line that says something; "X raised:" says nothing yet."""
    lines = [line.strip() for line in error["message"].splitlines() if line.strip()] or ["no message"]
    first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return f"{error['type']}: {first[:400]}"
