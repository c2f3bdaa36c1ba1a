"""The processes of one worker: its servers, the one that holds a model's code, and one for each job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness.cases import Case, Entry, Stage, Verdict
from harness.jobs import cache as caches
from harness.jobs import death, device_lock
from harness.jobs.memory import Ledger, usable
from harness.jobs.payload import of_case
from harness.jobs.supervisor import (
    Child,
    JobTaken,
    Limits,
    Outcome,
    Server,
    ServerFailed,
    kills_since,
    oom_kills,
    supervise,
)
from harness.records import Peak
from harness.redaction import SECRETS
from harness.targets.base import Target, TargetUnavailable

_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_", "TORCH_COMPILE_BACKEND")
"""Settings with which a compiled mode would compile nothing, or something else."""


class NotImported(Outcome):
    """How the process ended that was to import a model's code, in which no backend has a part."""


class Processes:
    """Runs the jobs of one worker, each in a process of its own, and says how it ended.

    Two servers are forked from: one preloaded with the target, and, only when something is to be done on CPU, one that
    never loads a backend. `folder` is a private one that workers of a run have in common, to share them. Consecutive
    jobs of an entry share a process that has imported the model's code; every job runs in a fresh fork of it.

    `facts` is the provenance of what executes, None until it has executed something. `peak` predicts the memory that
    is reserved for a case's job, `patience` how long a device is waited for that others have. The other arguments and
    attributes are those of `JobRunner`.
    """

    def __init__(
        self,
        target: Target,
        cache: Path,
        folder: Path,
        *,
        limits: Limits,
        seed: int,
        fault: str,
        patience: device_lock.Patience,
        peak: Callable[[Case], Peak],
        on_stage: Callable[[Case, Stage], None],
    ) -> None:
        self.target, self.cache, self.folder = target, cache, folder
        self.limits, self.seed, self.fault, self.patience = limits, seed, fault, patience
        self.on_stage = on_stage
        self.facts: dict[str, str] | None = None
        self.target_server: Server | None = None
        self.reference_server: Server | None = None
        self.model: tuple[Entry, Server, Child] | None = None
        self._unavailable: TargetUnavailable | None = None
        self._peak = peak
        self._memory = Ledger(cache / "memory", usable())

    def close(self) -> None:
        """End every process."""
        self._drop_model()
        for server in (self.target_server, self.reference_server):
            if server is not None:
                server.close()
        self.target_server = self.reference_server = self.facts = self._unavailable = None

    def start(self) -> None:
        """Begin to start the target's server without waiting for it."""
        if self.target_server is None:
            self.target_server = Server.join(
                self.target.name,
                "harness.jobs.preload:target",
                self.target.name,
                lambda: self._environment() | self.target.environment(self.cache),
                self.folder,
            )

    def describe(self) -> dict[str, str]:
        """Provenance of what executes, after it has been proved to execute an operation.

        Raises TargetUnavailable, with one line of why, and DeviceBusy.
        """
        self.start()
        if self.facts is None and self._unavailable is None:
            try:
                self.facts = self.prove()
            except TargetUnavailable as unavailable:
                self._unavailable = unavailable
        if self._unavailable is not None:
            raise self._unavailable
        return self.facts

    def prove(self) -> dict[str, str]:
        """Prove that the target executes an operation now; returns and raises as `describe`."""
        try:
            try:
                described, outcome = self._try()
            except ServerFailed as failed:
                if failed.kind:
                    raise
                self.close()  # somebody may have killed a server that others share: a new one tells
                self.start()
                described, outcome = self._try()
            while self.is_busy(outcome):
                if not self.patience.lasts():
                    raise self.patience.lost(self.target)
                described, outcome = self._try()
            self.patience.renew()
        except ServerFailed as failed:
            if failed.kind == TargetUnavailable.__name__:
                raise TargetUnavailable(str(failed)) from failed
            last = (failed.log.strip().splitlines() or ["it printed nothing"])[-1]
            raise TargetUnavailable(f"{self.target.name}: {failed}: {last}") from failed
        if outcome.result is None:
            raise TargetUnavailable(f"{self.target.name}: {death.of_death(outcome, self.target)[1]}")
        if "error" in outcome.result:
            raise TargetUnavailable(f"{self.target.name}: {death.one_line(outcome.result['error'])}")
        return described

    def on_target(
        self, case: Case, checkpoint: str, *, job: str = "harness.jobs.target_job:run", watch: str = ""
    ) -> Outcome:
        """Run a job of `case` on the target, with the case's model from `checkpoint`; `watch` is a folder for it.

        Returns NotImported where the model's code could not be. A device that the backend says is in use is tried
        again while there is patience. Raises DeviceBusy where its lock was waited for in vain; ServerFailed, and
        JobTaken of a job that was ended from outside.
        """
        model = self._model_process(case)
        if isinstance(model, NotImported):
            return model
        payload = self._payload(case, checkpoint, watch) | {"fault": self.fault}
        while True:
            with device_lock.held(self.target, self.cache, self.patience), self._reserved(case):
                outcome = self._supervised(model, case, job, payload)
            if outcome.status is None:
                self._drop_model()
            self._own(outcome, self.target)
            if not self.is_busy(outcome):
                self.patience.renew()
                return outcome
            if not self.patience.lasts():
                return outcome

    def on_cpu(self, case: Case, checkpoint: str, *, job: str, watch: str = "") -> Outcome:
        """Run a job of `case` in a process that never loads a backend. Raises ServerFailed and JobTaken."""
        if self.reference_server is None:
            self.reference_server = Server.join(
                "reference", "harness.jobs.preload:reference", "", self._environment, self.folder
            )
            self.reference_server.ready()
        with self._reserved(case):
            outcome = self._supervised(self.reference_server, case, job, self._payload(case, checkpoint, watch))
        if outcome.status is None:
            self.reference_server.close()
            self.reference_server = None
        return self._own(outcome, None)

    def is_busy(self, outcome: Outcome) -> bool:
        """Whether the backend said that somebody else has the device, who holds no lock of ours."""
        if outcome.result is None:
            said = outcome.log
        elif "error" in outcome.result:
            said = outcome.result["error"]["detail"]
        else:
            return False
        return self.target.diagnose(said, outcome.stage) is Verdict.DEVICE_BUSY

    def _try(self) -> tuple[dict[str, str], Outcome]:
        described = self.target_server.ready()
        with device_lock.held(self.target, self.cache, self.patience):
            child = self.target_server.fork("harness.jobs.target_job:prove", {})
            outcome = supervise(self.target_server, child, self.limits, Stage.RUN, lambda stage: None)
        return described, self._own(outcome, self.target)

    def _payload(self, case: Case, checkpoint: str, watch: str) -> dict[str, Any]:
        folder = str(caches.reference_folder(self.cache, case, self.seed))
        return {"case": of_case(case), "seed": self.seed, "checkpoint": checkpoint, "folder": folder, "watch": watch}

    def _reserved(self, case: Case) -> AbstractContextManager[None]:
        return self._memory.reserved(self._peak(case).bytes)

    def _supervised(self, server: Server, case: Case, job: str, payload: dict[str, Any]) -> Outcome:
        child = server.fork(job, payload)
        return supervise(server, child, self.limits, Stage.IMPORT, lambda stage: self.on_stage(case, stage))

    @staticmethod
    def _own(outcome: Outcome, target: Target | None) -> Outcome:
        """The outcome of a process that ended as it did by itself. Raises JobTaken of one that did not."""
        if outcome.taken:
            raise JobTaken(death.of_death(outcome, target)[1], outcome.stage, outcome.log)
        return outcome

    def _model_process(self, case: Case) -> Server | NotImported:
        """The process that has imported the code of the case's model, or how it failed to."""
        if self.model is not None and self.model[0] == case.entry:
            return self.model[1]
        self._drop_model()
        kills = oom_kills()
        child = self.target_server.fork("harness.jobs.target_job:serve_model", {"case": of_case(case)})
        server = Server.adopt(child, "model")
        try:
            server.ready(self.limits.of(Stage.IMPORT))
        except ServerFailed as failed:
            child.kill()
            notice = self.target_server.ended(child, self.limits.of(Stage.IMPORT)) or {"status": None}
            outcome = NotImported(Stage.IMPORT, status=notice["status"], log=child.printed())
            outcome.kernel_kills = kills_since(kills)
            if failed.kind:
                error = {
                    "type": failed.kind,
                    "message": str(failed),
                    "detail": failed.log,
                    "errno": None,
                    "ours": False,
                }
                outcome.result = {"error": error}
            child.close()
            self._own(outcome, self.target)
            return outcome
        self.model = (case.entry, server, child)
        return server

    def _drop_model(self) -> None:
        if self.model is None:
            return
        _, server, child = self.model
        self.model = None
        server.channel.close()  # it kills what it has forked and ends
        if self.target_server is None or self.target_server.ended(child, self.limits.of(Stage.IMPORT)) is None:
            child.kill()
        child.close()

    def _environment(self) -> dict[str, str]:
        """What they leave in their folder for temporary files goes when the run ends.

        The library looks there too for code and files of other repositories, and so finds none that nobody fetched.
        """
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        room = {"HF_MODULES_CACHE": str(scratch / "modules"), "HF_HUB_CACHE": str(scratch / "hub")}
        return environment() | room | {"TMPDIR": str(scratch)}


def environment() -> dict[str, str]:
    """Of every job process: offline, without tokens, one thread, and no backend loaded by itself."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in SECRETS and not name.startswith(_SWITCHES)
    }
    return inherited | {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_TOKEN_PATH": os.devnull,
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
