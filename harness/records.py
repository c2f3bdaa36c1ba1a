"""The one record a finished case leaves behind, as it travels from job to journal to store."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.cases import Case, Evidence, Given, Stage, Verdict

FAULTY = ".faulty"


def recorded_target(name: str, fault: str) -> str:
    """Under which name results of the target `name` are kept: another one where it was broken on purpose.

    So nothing that asks for a target's results is ever given those of a run with a fault put in.
    """
    return name + FAULTY if fault else name


def real_target(recorded: str) -> str:
    """The target's own name, from the one that `recorded_target` gave it."""
    return recorded.removesuffix(FAULTY)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One judged output tensor.

    `error`, `cpu_error` and `allowed` are root-mean-square errors against float64 truth,
    `max_error` and `max_allowed` the same for the worst element; all in the leaf's own units.
    `index` is the worst element, `actual` and `expected` its values on the target and in truth
    (`expected` is the float64 truth; `cpu` the CPU's value at the case's dtype).
    """

    path: str
    verdict: Verdict
    shape: tuple[int, ...]
    dtype: str
    elements: int
    scale: float | None = None
    error: float | None = None
    cpu_error: float | None = None
    allowed: float | None = None
    max_error: float | None = None
    max_cpu_error: float | None = None
    max_allowed: float | None = None
    index: tuple[int, ...] | None = None
    actual: float | None = None
    cpu: float | None = None
    expected: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Error as a share of what is allowed, the larger of the two measures; above 1 fails. None if unmeasured."""
        if self.error is None or not self.allowed or self.max_error is None or not self.max_allowed:
            return None
        return max(self.error / self.allowed, self.max_error / self.max_allowed)


@dataclass(frozen=True, slots=True)
class Blame:
    """Where a wrong result comes from, as far as running again tells.

    `pair` names the two executions that disagree, "compiled vs strict-eager" or "strict-eager vs cpu"; empty where
    unknown. `repeats` says that a second run of the target agreed with the first. `precision` is the widest narrower
    type whose products, on CPU, are as far from the truth as the target is; empty where none is. `first` is the path of
    the first output tensor, in order, that is wrong. `operator` is the first one that fails by itself, by the name it
    has in the mode that was searched, and `module` the path of what called it; `given` are the dtypes and shapes of its
    tensors, `place` says which call of the run or of which captured graph it was, unknown of one that did not return,
    and `why` what is wrong with its result, or how it ended. Empty where none was found. Where no operator fails alone,
    `module` is the innermost one that is wrong as a whole, and the rest tells of that.
    """

    pair: str = ""
    repeats: bool | None = None
    precision: str = ""
    first: str = ""
    operator: str = ""
    module: str = ""
    given: str = ""
    place: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the target did for a case; None is "unknown", never zero by default.

    `host_reads` are copies from the target to the host in one call, those of its outputs not included;
    `programs_recompiled` were compiled in a call that repeats an earlier one.
    """

    programs_executed: int | None = None
    programs_requested: int | None = None
    programs_compiled: int | None = None
    programs_recompiled: int | None = None
    host_reads: int | None = None
    graph_breaks: int | None = None
    peak_device_bytes: int | None = None
    peak_host_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One finished case: verdict, numbers and evidence.

    `stage` is where the case ended (`compare` for a judged case). `seconds` maps stage names to
    wall seconds; a stage absent from it was not entered (for instance a cached reference).
    `inputs` is what made them, None where none were.
    `message` is one line; `detail` the full error text; `log` the last lines the processes printed.
    `cpu_seconds` is what the case's process used, its reference not included.
    `latency_seconds` is the wall time of a repeated call, after everything has been compiled once.
    Hashes are sha256 hex of weights, of inputs, and of all that the outputs depend on; `twin_of` is the id of
    the case that ran in this one's stead, since it depends on the very same. `truth` is the dtype that the
    truth was computed in, empty where it was not. `operators` are those of PyTorch that the model's code calls by name
    (`gelu`), as the reference saw it; none where there was no reference. `flips` counts the choices between
    equally good candidates that the target made otherwise than the CPU; None where none had to be looked at.
    `attempts` is what each of several attempts came to, in order, as a JSON list of objects with `verdict`, `stage` and
    `message`; empty where there was one.
    """

    case: Case
    target: str
    emulated: bool
    verdict: Verdict
    stage: Stage
    message: str = ""
    detail: str = ""
    log: str = ""
    signal: str = ""
    exit_code: int | None = None
    evidence: Evidence | None = None
    inputs: Given | None = None
    worst: Leaf | None = None
    leaves: int | None = None
    blame: Blame = Blame()
    flips: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    counters: Counters = Counters()
    synthetic_params: int | None = None
    truth: str = ""
    operators: tuple[str, ...] = ()
    reference_cached: bool | None = None
    weights_sha256: str = ""
    inputs_sha256: str = ""
    structure_sha256: str = ""
    twin_of: str = ""
    attempts: str = ""
    seed: int = 0
    latency_seconds: float | None = None
    cpu_seconds: float | None = None
    worker: str = ""
    started_at: str = ""
    wall_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes of the host's memory that the largest process of a case is predicted to need.

    `least` is what it has needed before, or must for its parameters alone, `device` what these must take of the
    device's own memory; None where that is unknown.
    """

    bytes: int
    least: int | None = None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class PastCase:
    """What planning learns from a case's recent results on a target.

    `seconds` is the median wall time, None where no result tells how long the case takes; `verdict` the last one,
    `recorded_at` when that was made (UTC, ISO 8601), and `twin` whether another case ran in its stead then. `peak` is
    the largest resident memory of its process in bytes, None where no result tells.
    """

    seconds: float | None
    verdict: Verdict
    recorded_at: str
    twin: bool = False
    peak: int | None = None
