"""Runs cases, one after the other, each in processes of its own, and turns whatever happens into a record."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.cases import Case, Entry, Stage, Verdict
from harness.jobs import attempts, death, device_lock, trail
from harness.jobs import cache as caches
from harness.jobs.attempts import WRONG
from harness.jobs.lost_device import Streak
from harness.jobs.memory import SETTING, Ledger, most, usable
from harness.jobs.payload import of_case
from harness.jobs.prepared import Prepared
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
from harness.jobs.twins import Twins
from harness.records import Blame, Counters, Leaf, Peak, Record
from harness.targets.base import Target, TargetUnavailable

_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_", "TORCH_COMPILE_BACKEND")
"""Settings with which a compiled mode would compile nothing, or something else."""
_LOCATED = (*WRONG, Verdict.RUN_ERROR, Verdict.UNSUPPORTED_OP, Verdict.CRASH)
"""Failures of a run that one operator may be to blame for, and so are sought in it."""
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
PROBE_SECONDS = 20.0
"""How long a probe waits for a device that others have: somebody is watching."""


class TooLarge(RuntimeError):
    """A case needs more memory than jobs may ever use on this machine; the message says how much, in one line."""


class JobRunner:
    """Runs cases on one target from one worker process, which itself imports no torch.

    `fault` names a `module:function` that is called in the process of each case before the model is
    loaded, to break the backend there on purpose. `facts` is the provenance of what executes, None until
    it has executed something.

    `again` says of a failure whether it is worth a second attempt in a fresh process, where another process may end
    otherwise at all (`harness/jobs/attempts.py`); None: none is.

    `peak` predicts the memory that a case needs; no more jobs run side by side, on all of the machine, than have enough
    of it, and one that needs more than there can be ends as TOO_LARGE before it starts.

    `patience` is for how many seconds a device is waited for that others have; once in vain, and no more then.

    `servers` is a private folder that the runners of a run have in common, to share their servers.
    Two servers are forked from: one preloaded with the target, and, only when a reference is not
    cached, one that never loads a backend. Consecutive cases of an entry share a process that has
    imported the model's code; every case runs in a fresh fork of it. Use as a context manager.
    """

    def __init__(
        self,
        target: Target,
        cache: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        worker: str = "main",
        on_stage: Callable[[Case, Stage], None] | None = None,
        fault: str = "",
        servers: Path | None = None,
        again: Callable[[Record], bool] | None = None,
        peak: Callable[[Case], Peak] = lambda case: Peak(0),
        patience: float = device_lock.WAIT_SECONDS,
    ) -> None:
        self.target, self.cache, self.limits, self.seed, self.worker = target, cache, limits, seed, worker
        self.fault = fault
        self.again = again
        self._peak = peak
        self._memory = Ledger(cache / "memory", usable())
        self._own_servers = None if servers else tempfile.TemporaryDirectory(prefix="zoo-")
        self._servers = servers or Path(self._own_servers.name)
        self._patience = device_lock.Patience(str(self._servers), patience)
        self._twins = Twins(self._servers)
        self._on_stage = on_stage or (lambda case, stage: None)
        self._target_server: Server | None = None
        self._reference_server: Server | None = None
        self.facts: dict[str, str] | None = None
        self._unavailable: TargetUnavailable | None = None
        self._model: tuple[Entry, Server, Child] | None = None
        self._references: dict[Path, Prepared] = {}
        self._plain: dict[tuple[Case, str], Verdict] = {}
        self._streak = Streak()
        self._lost = ""

    def __enter__(self) -> JobRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._own_servers is not None:
            self._own_servers.cleanup()

    def close(self) -> None:
        """End every process this runner has started."""
        self._drop_model()
        for server in (self._target_server, self._reference_server):
            if server is not None:
                server.close()
        self._target_server = self._reference_server = self.facts = self._unavailable = None

    def start(self) -> None:
        """Begin to start the target's server without waiting for it."""
        if self._target_server is None:
            self._target_server = Server.join(
                self.target.name,
                "harness.jobs.preload:target",
                self.target.name,
                lambda: self._environment() | self.target.environment(self.cache),
                self._servers,
            )

    def describe(self) -> dict[str, str]:
        """Provenance of what executes, after it has been proved to execute an operation.

        Raises TargetUnavailable, with one line of why, and DeviceBusy.
        """
        self.start()
        if self.facts is None and self._unavailable is None:
            try:
                self.facts = self._proved()
            except TargetUnavailable as unavailable:
                self._unavailable = unavailable
        if self._unavailable is not None:
            raise self._unavailable
        return self.facts

    def _proved(self) -> dict[str, str]:
        try:
            try:
                described, outcome = self._prove()
            except ServerFailed as failed:
                if failed.kind:
                    raise
                self.close()  # somebody may have killed a server that others share: a new one tells
                self.start()
                described, outcome = self._prove()
            while self._is_busy(outcome):
                if not self._patience.lasts():
                    raise self._patience.lost(self.target)
                described, outcome = self._prove()
            self._patience.renew()
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

    def _prove(self) -> tuple[dict[str, str], Outcome]:
        described = self._target_server.ready()
        with device_lock.held(self.target, self.cache, self._patience):
            child = self._target_server.fork("harness.jobs.target_job:prove", {})
            outcome = supervise(self._target_server, child, self.limits, Stage.RUN, lambda stage: None)
        return described, self._own(outcome, self.target)

    def _is_busy(self, outcome: Outcome) -> bool:
        """Whether the backend said that somebody else has the device, who holds no lock of ours."""
        if outcome.result is None:
            said = outcome.log
        elif "error" in outcome.result:
            said = outcome.result["error"]["detail"]
        else:
            return False
        return self.target.diagnose(said, outcome.stage) is Verdict.DEVICE_BUSY

    def run(self, case: Case) -> Record:
        """Run one case to its record, whatever a model or a backend does meanwhile.

        Raises TargetUnavailable where the target cannot be loaded or executes nothing at all.
        """
        started, clock = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        record = Record(case, self.target.name, self.target.emulated, Verdict.HARNESS_ERROR, Stage.IMPORT)
        try:
            try:
                self._require_memory(case)
                self.start()
                record = self._judged(record)
            except ServerFailed as failed:  # which says nothing about this case
                self.close()
                self.start()
                again = self._judged(record)
                if isinstance(failed, JobTaken):
                    taken = dataclasses.replace(record, stage=failed.stage, message=str(failed))
                    again = attempts.repeated(taken, again)
                record = again
        except TooLarge as large:
            record = dataclasses.replace(record, verdict=Verdict.TOO_LARGE, message=str(large))
        except device_lock.DeviceBusy as busy:
            record = dataclasses.replace(record, verdict=Verdict.DEVICE_BUSY, message=str(busy))
        except ServerFailed as failed:
            stage = failed.stage if isinstance(failed, JobTaken) else record.stage
            record = dataclasses.replace(record, stage=stage, message=str(failed), log=failed.log)
            self.close()
        return dataclasses.replace(
            record,
            seed=self.seed,
            worker=self.worker,
            started_at=started,
            wall_seconds=time.monotonic() - clock,
        )

    def _judged(self, record: Record) -> Record:
        case = record.case
        if self._lost:
            return dataclasses.replace(record, verdict=Verdict.BACKEND_UNAVAILABLE, message=self._lost)
        self._on_stage(case, Stage.IMPORT)
        prepared = self._prepared(case)
        record = dataclasses.replace(record, **prepared.facts, seconds=prepared.seconds)
        if prepared.verdict is not None:
            return dataclasses.replace(record, verdict=prepared.verdict, **prepared.why)
        self.describe()
        if twin := self._twins.of(case, record.structure_sha256, self.fault):
            own = prepared.facts | {"case": case, "twin_of": twin.case.id, "seconds": prepared.seconds}
            return dataclasses.replace(twin, **own, log="", cpu_seconds=None)
        first = self._attempt(record, prepared)
        if self.again and first.verdict in attempts.AGAIN and not first.attempts and self.again(first):
            record = attempts.settled(first, self._attempt(record, prepared))
        else:
            record = first
        record = self._doubted(record)
        if record.verdict in _LOCATED and record.stage in (Stage.RUN, Stage.COMPARE):
            record = self._located(record, prepared)
        if case.mode is self.target.modes[0]:
            self._plain = {(case, self.fault): record.verdict}
        self._twins.keep(record, self.fault)
        return record

    def _doubted(self, record: Record) -> Record:
        """The record, after a proof that the device still works where there is doubt; without one it tells of that."""
        if not self._streak.doubts(record):
            return record
        try:
            self._proved()
        except device_lock.DeviceBusy:
            return record
        except TargetUnavailable as gone:
            since = f"it stopped after {self._streak.after}: " if self._streak.after else ""
            self._lost = f"{gone}; {since}`zoo rerun --verdict BACKEND_UNAVAILABLE` tries again"
            message = f"{record.message}; {self._lost}"
            return dataclasses.replace(record, verdict=Verdict.BACKEND_UNAVAILABLE, message=message)
        return record

    def _attempt(self, record: Record, prepared: Prepared) -> Record:
        record = self._run(record, prepared)
        return self._explained(record, prepared) if record.verdict in WRONG else record

    def _explained(self, record: Record, prepared: Prepared) -> Record:
        """A record of a wrong result with what running again tells of why; a pass where it was only a toss-up."""
        blame = dataclasses.replace(record.blame, pair=self._pair(record, prepared))
        record = dataclasses.replace(record, blame=blame)
        model = self._model_process(record.case)
        if isinstance(model, Outcome):
            return record
        with tempfile.TemporaryDirectory(dir=self._servers) as folder:
            outcome = self._on_target(model, record.case, prepared, watch=folder)
            if (outcome.result or {}).get(
                "verdict"
            ) != record.verdict:  # what it chose then tells nothing of the result
                return dataclasses.replace(record, message=f"{record.message}; run again, it {self._end(outcome)}")
            second = self._ended(record, outcome, record.verdict, outcome.result["message"])
            record = dataclasses.replace(record, attempts=attempts.told(record, second))
            payload = self._payload(record.case, prepared.checkpoint) | {"watch": folder}
            outcome = self._on_cpu("harness.jobs.reference_job:look_again", record.case, payload)
        return self._looked_at(record, outcome)

    def _pair(self, record: Record, prepared: Prepared) -> str:
        """The two executions that disagree: the mode and the target's first one, or that one and the CPU."""
        plain = dataclasses.replace(record.case, mode=self.target.modes[0])
        if record.case == plain:
            return f"{plain.mode} vs cpu"
        if (plain, self.fault) not in self._plain:
            self._plain = {(plain, self.fault): self._run(dataclasses.replace(record, case=plain), prepared).verdict}
        verdict = self._plain[plain, self.fault]
        if verdict is Verdict.PASS:
            return f"{record.case.mode} vs {plain.mode}"
        return f"{plain.mode} vs cpu" if verdict in WRONG else ""

    def _looked_at(self, record: Record, outcome: Outcome) -> Record:
        result = outcome.result or {}
        if "judged" not in result:
            return dataclasses.replace(record, message=f"{record.message}; looking again {self._end(outcome)}")
        judged, flips, draws = result["judged"], result["flips"], result["draws"]
        blame = dataclasses.replace(record.blame, precision=result["precision"])
        found = {"flips": flips, "blame": blame}
        told = [judged["message"]]
        if flips:
            told.append(f"{flips} choices between equally good candidates are not the CPU's")
        if draws > 1:
            told.append(f"within the noise of {draws} CPU runs, not of the first")
        if len(told) > 1:
            found |= {"worst": _leaf(judged["worst"]), "verdict": Verdict(judged["verdict"])}
            found["message"] = "; ".join(filter(None, told))
        if found.get("verdict") is Verdict.PASS:  # then nobody is to blame
            found |= {"blame": Blame(repeats=blame.repeats), "attempts": ""}
        return dataclasses.replace(record, **found, seconds=_sum(record.seconds, outcome.seconds))

    def _located(self, record: Record, prepared: Prepared) -> Record:
        """A record of a failure with the operator that fails first, where one alone does."""
        case = record.case
        if record.blame.pair == f"{self.target.modes[0]} vs cpu":  # where nothing is fused, and names are ATen's
            case = dataclasses.replace(case, mode=self.target.modes[0])
        model = self._model_process(case)
        if isinstance(model, Outcome):
            return record
        with tempfile.TemporaryDirectory(dir=self._servers) as folder:
            job = "harness.jobs.first_bad_job:run"
            outcome = self._on_target(model, case, prepared, watch=folder, job=job)
            operator, module = trail.last(Path(folder))
        result = outcome.result or {}
        if result.get("bad"):
            operator, module = result["bad"][0]["operator"], result["bad"][0]["module"]
        elif "bad" in result:
            told = f"none of {result['checked']} operators fails alone"
            return dataclasses.replace(record, message=f"{record.message}; {told}")
        elif outcome.stage is not Stage.RUN or not operator:
            told = f"seeking the operator that fails first {self._end(outcome)}"
            return dataclasses.replace(record, message=f"{record.message}; {told}")
        blame = dataclasses.replace(record.blame, operator=operator, module=module)
        where = f" in {module}" if module else ""
        message = f"{record.message}; first to fail: {operator}{where}"
        return dataclasses.replace(record, message=message, blame=blame)

    def _end(self, outcome: Outcome) -> str:
        """How a process ended that was to tell more about a wrong result."""
        result = outcome.result or {}
        if error := result.get("error"):
            return f"failed: {death.one_line(error)}"
        return f"ended as {result['verdict']}" if "verdict" in result else death.of_death(outcome, self.target)[1]

    def _run(self, record: Record, prepared: Prepared) -> Record:
        model = self._model_process(record.case)
        if isinstance(model, Outcome):
            if error := (model.result or {}).get("error"):
                return self._ended(record, model, death.of_error(error, Stage.BUILD, None), death.one_line(error))
            return self._ended(record, model, *death.of_death(model, self.target))
        outcome = self._on_target(model, record.case, prepared)
        while self._is_busy(outcome) and self._patience.lasts():
            outcome = self._on_target(model, record.case, prepared)
        if self._is_busy(outcome):
            why = f"{self._patience.lost(self.target)}; the last try {self._end(outcome)}"
            return self._ended(record, outcome, Verdict.DEVICE_BUSY, why)
        self._patience.renew()
        if outcome.result is None:
            return self._ended(record, outcome, *death.of_death(outcome, self.target))
        error = outcome.result.get("error")
        if error is not None:
            verdict = death.of_error(error, outcome.stage, self.target)
            return self._ended(record, outcome, verdict, death.one_line(error), error["detail"])
        return self._ended(record, outcome, Verdict(outcome.result["verdict"]), outcome.result["message"])

    def _on_target(
        self,
        model: Server,
        case: Case,
        prepared: Prepared,
        watch: str = "",
        job: str = "harness.jobs.target_job:run",
    ) -> Outcome:
        payload = self._payload(case, prepared.checkpoint) | {"fault": self.fault, "watch": watch}
        with device_lock.held(self.target, self.cache, self._patience), self._reserved(case):
            child = model.fork(job, payload)
            on_stage = lambda stage: self._on_stage(case, stage)  # noqa: E731
            outcome = supervise(model, child, self.limits, Stage.IMPORT, on_stage)
        if outcome.status is None:
            self._drop_model()
        return self._own(outcome, self.target)

    def _payload(self, case: Case, checkpoint: str) -> dict[str, Any]:
        folder = str(caches.reference_folder(self.cache, case, self.seed))
        return {"case": of_case(case), "seed": self.seed, "checkpoint": checkpoint, "folder": folder}

    def _ended(self, record: Record, outcome: Outcome, verdict: Verdict, message: str, detail: str = "") -> Record:
        result = outcome.result or {}
        counters = Counters(**result.get("counters", {}))
        worst = result.get("worst")
        return dataclasses.replace(
            record,
            verdict=verdict,
            stage=outcome.stage,
            message=message,
            detail=detail,
            log=outcome.log,
            signal=outcome.signal,
            exit_code=None if result else outcome.exit_code,
            seconds=_sum(record.seconds, outcome.seconds),
            counters=dataclasses.replace(counters, peak_host_bytes=outcome.peak_bytes),
            leaves=result.get("leaves"),
            latency_seconds=result.get("latency"),
            cpu_seconds=outcome.cpu_seconds,
            worst=_leaf(worst) if worst else None,
            blame=Blame(**result.get("blame", {})),
        )

    def _prepared(self, case: Case) -> Prepared:
        """The reference of a case: from this run, from the cache, or computed now."""
        folder = caches.reference_folder(self.cache, case, self.seed)
        if folder in self._references:
            return dataclasses.replace(self._references[folder], seconds={})
        meta = caches.read_meta(folder)
        prepared = Prepared.of(meta, cached=True) if meta else self._compute_reference(case, folder)
        self._references = {folder: prepared} if prepared.verdict is None else self._references | {folder: prepared}
        return prepared

    def _compute_reference(self, case: Case, folder: Path) -> Prepared:
        checkpoint = caches.checkpoint_folder(self.cache, case.entry, self.seed)
        outcome = self._on_cpu("harness.jobs.reference_job:run", case, self._payload(case, str(checkpoint)))
        if outcome.result is None:
            verdict, message = death.of_death(outcome, None)
            return Prepared.failed(verdict, outcome, message)
        error = outcome.result.get("error")
        if error is not None:
            verdict = death.of_error(error, outcome.stage, None)
            return Prepared.failed(verdict, outcome, death.one_line(error), error["detail"])
        return dataclasses.replace(Prepared.of(outcome.result["meta"], cached=False), seconds=outcome.seconds)

    def _on_cpu(self, job: str, case: Case, payload: dict[str, Any]) -> Outcome:
        """Run a job of `case` in a process that never loads a backend."""
        if self._reference_server is None:
            self._reference_server = Server.join(
                "reference", "harness.jobs.preload:reference", "", self._environment, self._servers
            )
            self._reference_server.ready()
        with self._reserved(case):
            child = self._reference_server.fork(job, payload)
            on_stage = lambda stage: self._on_stage(case, stage)  # noqa: E731
            outcome = supervise(self._reference_server, child, self.limits, Stage.IMPORT, on_stage)
        if outcome.status is None:
            self._reference_server.close()
            self._reference_server = None
        return self._own(outcome, None)

    def _require_memory(self, case: Case) -> None:
        least, there = self._peak(case).least, most()
        if least is not None and least > there:
            raise TooLarge(
                f"it needs {least / 1e9:.3g} GB of memory ({least} bytes), and jobs may use {there / 1e9:.3g} GB here"
                f" ({there} bytes): run it on a larger machine, or allow more with {SETTING}"
            )
        device, there = self._peak(case).device, self.target.device_bytes
        if device is not None and there is not None and device > there:
            raise TooLarge(
                f"it needs {device / 1e9:.3g} GB of the device's memory ({device} bytes), and {self.target.name} has"
                f" {there / 1e9:.3g} GB ({there} bytes): run it on a larger device"
            )

    def _reserved(self, case: Case) -> AbstractContextManager[None]:
        return self._memory.reserved(self._peak(case).bytes)

    @staticmethod
    def _own(outcome: Outcome, target: Target | None) -> Outcome:
        """The outcome of a process that ended as it did by itself. Raises JobTaken of one that did not."""
        if outcome.taken:
            raise JobTaken(death.of_death(outcome, target)[1], outcome.stage, outcome.log)
        return outcome

    def _model_process(self, case: Case) -> Server | Outcome:
        """The process that has imported the code of the case's model, or how it failed to."""
        if self._model is not None and self._model[0] == case.entry:
            return self._model[1]
        self._drop_model()
        kills = oom_kills()
        child = self._target_server.fork("harness.jobs.target_job:serve_model", {"case": of_case(case)})
        server = Server.adopt(child, "model")
        try:
            server.ready(self.limits.of(Stage.IMPORT))
        except ServerFailed as failed:
            child.kill()
            notice = self._target_server.ended(child, self.limits.of(Stage.IMPORT)) or {"status": None}
            outcome = Outcome(Stage.IMPORT, status=notice["status"], log=child.printed())
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
            return self._own(outcome, self.target)
        self._model = (case.entry, server, child)
        return server

    def _drop_model(self) -> None:
        if self._model is None:
            return
        _, server, child = self._model
        self._model = None
        server.channel.close()  # it kills what it has forked and ends
        if self._target_server is None or self._target_server.ended(child, self.limits.of(Stage.IMPORT)) is None:
            child.kill()
        child.close()

    def _environment(self) -> dict[str, str]:
        """Of this runner's processes: what they leave in their folder for temporary files goes when the run ends."""
        scratch = self._servers / "tmp"
        scratch.mkdir(exist_ok=True)
        return self.environment() | {"TMPDIR": str(scratch)}

    @staticmethod
    def environment() -> dict[str, str]:
        """Of every job process: offline, without tokens, one thread, and no backend loaded by itself."""
        inherited = {
            name: value for name, value in os.environ.items() if name not in _SECRETS and not name.startswith(_SWITCHES)
        }
        return inherited | {
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "MKL_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }


def probe(target: Target, cache: Path) -> dict[str, str]:
    """Prove that the target executes an operation, in processes of its own, and describe it.

    Raises TargetUnavailable, with one line of why.
    """
    with JobRunner(target, cache, patience=PROBE_SECONDS) as runner:
        try:
            return runner.describe()
        except device_lock.DeviceBusy as busy:
            raise TargetUnavailable(str(busy)) from busy


def _leaf(data: dict[str, Any]) -> Leaf:
    shape, index = tuple(data["shape"]), data["index"]
    known = {"verdict": Verdict(data["verdict"]), "shape": shape, "index": None if index is None else tuple(index)}
    return Leaf(**data | known)


def _sum(*parts: dict[str, float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for stage, seconds in part.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total
