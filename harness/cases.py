"""The nouns of the harness: entries, cases and the closed vocabularies they are made of.

Nothing here imports torch: listing, planning and collection stay instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Where a job is, announced before it is entered, in the order they happen."""

    IMPORT = "import"
    FETCH = "fetch"
    BUILD = "build"
    INPUTS = "inputs"
    REFERENCE = "reference"
    TO_DEVICE = "to-device"
    COMPILE = "compile"
    RUN = "run"
    COMPARE = "compare"


class Phase(StrEnum):
    """What of a model is exercised."""

    FORWARD = "forward"
    GENERATE = "generate"
    TRAIN = "train"


class Mode(StrEnum):
    """How a target executes a model."""

    STRICT_EAGER = "strict-eager"
    DEFER_AND_FUSE = "defer-and-fuse"
    EAGER = "eager"
    COMPILED = "compiled"


class Dtype(StrEnum):
    """Floating-point type of parameters and floating-point inputs (torch's own names)."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Shipped(StrEnum):
    """What can be asked for in place of a dtype: each model's own, float32 where that is not known."""

    SHIPPED = "shipped"


class Profile(StrEnum):
    """Shape of the inputs: `padded` is batch 2 with one padded row, `single` is batch 1 of another size."""

    PADDED = "padded"
    SINGLE = "single"


class Given(StrEnum):
    """What made the inputs: seeded draws, or the checkpoint's own tokenizer or processor."""

    DRAWN = "drawn"
    TOKENIZER = "tokenizer"
    PROCESSOR = "processor"


class Weights(StrEnum):
    """Where the parameters come from: seeded on the architecture's defaults or on the model's own config, both reduced,
    or a real checkpoint."""

    SYNTHETIC = "synthetic"
    CONFIG = "config"
    HUB = "hub"


class Evidence(StrEnum):
    """How strong a result is, strongest first."""

    REAL_WEIGHTS = "real-weights"
    CONFIG_FAITHFUL = "config-faithful"
    ARCHITECTURE_DEFAULT = "architecture-default"


class Group(StrEnum):
    """Who a verdict speaks about."""

    PASS = "pass"
    BACKEND = "backend"
    MODEL = "model"
    ENVIRONMENT = "environment"
    HARNESS = "harness"


class Verdict(StrEnum):
    """How a case ended. Closed: every case ends in exactly one of these.

    Each member carries the group it speaks about and its meaning in one line.
    """

    group: Group
    meaning: str

    def __new__(cls, value: str, group: Group, meaning: str) -> Verdict:
        member = str.__new__(cls, value)
        member._value_ = value
        member.group = group
        member.meaning = meaning
        return member

    PASS = "PASS", Group.PASS, "every output leaf is within its noise budget"

    NONFINITE_DEVICE_ONLY = "NONFINITE_DEVICE_ONLY", Group.BACKEND, "NaN or infinity where the reference is finite"
    NONFINITE_REFERENCE_ONLY = (
        "NONFINITE_REFERENCE_ONLY",
        Group.BACKEND,
        "finite where the reference is NaN or infinite",
    )
    NONDETERMINISTIC = "NONDETERMINISTIC", Group.BACKEND, "two runs of the target differ by more than noise"
    NUMERIC_MISMATCH = "NUMERIC_MISMATCH", Group.BACKEND, "an output leaf is outside its noise budget"
    WRONG_STRUCTURE = "WRONG_STRUCTURE", Group.BACKEND, "output keys or lengths differ from the reference"
    WRONG_SHAPE = "WRONG_SHAPE", Group.BACKEND, "an output leaf has another shape than the reference"
    WRONG_DTYPE = "WRONG_DTYPE", Group.BACKEND, "an output leaf has another dtype than the reference"
    WRONG_DEVICE = "WRONG_DEVICE", Group.BACKEND, "a parameter, buffer or output is not on the target"
    HOST_FALLBACK = (
        "HOST_FALLBACK",
        Group.BACKEND,
        "right, but an operator copies from the target to the host though its result stays on the target",
    )
    RECOMPILES = "RECOMPILES", Group.BACKEND, "right, but every identical call compiles programs again"
    NOT_EXECUTED = "NOT_EXECUTED", Group.BACKEND, "the target executed no program"
    UNSUPPORTED_OP = "UNSUPPORTED_OP", Group.BACKEND, "the backend does not implement an operator"
    LOAD_ERROR = "LOAD_ERROR", Group.BACKEND, "the model could not be loaded onto the target"
    COMPILE_ERROR = "COMPILE_ERROR", Group.BACKEND, "the backend's compiler refused the model"
    RUN_ERROR = "RUN_ERROR", Group.BACKEND, "the target raised an error while running"
    OOM_DEVICE = "OOM_DEVICE", Group.BACKEND, "the target ran out of its own memory"
    CRASH = "CRASH", Group.BACKEND, "the process was killed by a signal of its own making"
    EXITED = "EXITED", Group.BACKEND, "the process ended without delivering a result"
    TIMEOUT = "TIMEOUT", Group.BACKEND, "a stage exceeded its wall limit"
    FLAKY = "FLAKY", Group.BACKEND, "failed, and passed when it was run again in a fresh process"

    BUILD_ERROR = "BUILD_ERROR", Group.MODEL, "the model could not be built on CPU"
    INPUT_ERROR = "INPUT_ERROR", Group.MODEL, "no valid inputs could be made for the model"
    REFERENCE_ERROR = "REFERENCE_ERROR", Group.MODEL, "the model does not run on CPU"
    NONFINITE_REFERENCE = "NONFINITE_REFERENCE", Group.MODEL, "the reference itself is NaN or infinite"
    NONDETERMINISTIC_REFERENCE = "NONDETERMINISTIC_REFERENCE", Group.MODEL, "two CPU runs of the reference differ"
    WEAK_REFERENCE = (
        "WEAK_REFERENCE",
        Group.MODEL,
        "the reference is constant or empty: it cannot tell right from wrong",
    )

    DEPENDENCY_MISSING = "DEPENDENCY_MISSING", Group.ENVIRONMENT, "a Python package the model needs is not installed"
    EMULATION_LIMIT = (
        "EMULATION_LIMIT",
        Group.ENVIRONMENT,
        "the stand-in cannot run this; says nothing about the backend",
    )
    BACKEND_UNAVAILABLE = "BACKEND_UNAVAILABLE", Group.ENVIRONMENT, "the target's device cannot be used here"
    DEVICE_BUSY = "DEVICE_BUSY", Group.ENVIRONMENT, "another process owns the device"
    OOM_HOST = "OOM_HOST", Group.ENVIRONMENT, "the host ran out of memory"
    TOO_LARGE = "TOO_LARGE", Group.ENVIRONMENT, "predicted to need more memory than there is; it was not started"
    DISK_FULL = "DISK_FULL", Group.ENVIRONMENT, "no space left to write"
    CHECKPOINT_MISSING = (
        "CHECKPOINT_MISSING",
        Group.ENVIRONMENT,
        "the real checkpoint or own config is not on this machine",
    )
    CODE_NOT_TRUSTED = (
        "CODE_NOT_TRUSTED",
        Group.ENVIRONMENT,
        "the model needs code of its own repository, which is not allowed to run",
    )
    GATED = "GATED", Group.ENVIRONMENT, "the Hub gives the model only to those it knows, and not to this machine"
    GONE = "GONE", Group.ENVIRONMENT, "the Hub has no such model, revision or file, or none that this machine may see"
    NO_SAFETENSORS = "NO_SAFETENSORS", Group.ENVIRONMENT, "the checkpoint has no weights that cannot carry code"
    RATE_LIMITED = "RATE_LIMITED", Group.ENVIRONMENT, "the Hub says that too much was asked of it"
    HUB_ERROR = "HUB_ERROR", Group.ENVIRONMENT, "the Hub failed to answer what it was asked"
    HUB_TIMEOUT = "HUB_TIMEOUT", Group.ENVIRONMENT, "the Hub did not answer, or not in time"
    TRUNCATED = "TRUNCATED", Group.ENVIRONMENT, "a file from the Hub ends early"
    WRONG_HASH = "WRONG_HASH", Group.ENVIRONMENT, "a file from the Hub is not the one that the Hub names"

    HARNESS_ERROR = "HARNESS_ERROR", Group.HARNESS, "the harness itself failed; says nothing about the model"


UNFETCHED_TODAY = frozenset(
    {Verdict.RATE_LIMITED, Verdict.HUB_ERROR, Verdict.HUB_TIMEOUT, Verdict.TRUNCATED, Verdict.WRONG_HASH}
)
"""How fetching from the Hub can fail on a bad day and succeed on the next."""
UNFETCHED = UNFETCHED_TODAY | {Verdict.GATED, Verdict.GONE, Verdict.NO_SAFETENSORS}
"""How fetching from the Hub can fail."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of a list.

    `revision` is a commit sha or empty where unknown; `params` is the real model's
    parameter count or None where unknown; `package` names the installed Python package
    that carries the real checkpoint of a `hub`-weights entry, empty otherwise. `phases` are
    those that its class has, in the order of `Phase`. `config` is the path of the model's own
    config.json or GGUF file, which a `synthetic` or `config` entry is then reduced from, and beside or in
    which the checkpoint of a `hub` entry lies; empty where only the architecture's defaults, or the package,
    are known. That of a `config` entry is where `zoo prefetch` puts it, and need not be there yet.
    `gated` (does the Hub ask for a token) and `custom_code` (does the model need code of its own
    repository) are yes, no or unknown. `dtype` is the type of `Dtype` that its weights come in, empty
    where it is unknown or none of these. `trusted` is the commit whose code somebody has read and allows
    to run, empty for none.
    """

    model_id: str
    revision: str
    library: str
    model_type: str
    model_class: str
    family: str
    task: str
    params: int | None
    tier: str
    weights: Weights = Weights.SYNTHETIC
    package: str = ""
    phases: tuple[Phase, ...] = (Phase.FORWARD,)
    config: str = ""
    gated: str = "unknown"
    custom_code: str = "unknown"
    dtype: str = ""
    trusted: str = ""

    @property
    def id(self) -> str:
        """Readable, unique in a list, glob-able: `bert/BertModel/google-bert/bert-base-uncased/synthetic`."""
        return "/".join((self.model_type, self.model_class, self.model_id, self.weights))

    @property
    def trusts_its_code(self) -> bool:
        """Whether code of its repository may run, with its real weights: it is at the very commit that is trusted."""
        return self.weights is Weights.HUB and bool(self.trusted) and self.trusted == self.revision


@dataclass(frozen=True, slots=True)
class Case:
    """An entry in one phase, mode, dtype and input profile, on whatever target the run has."""

    entry: Entry
    phase: Phase
    mode: Mode
    dtype: Dtype
    profile: Profile

    @property
    def id(self) -> str:
        """Stable and glob-able; also the last part of the pytest node id."""
        return "/".join((self.entry.id, self.phase, self.mode, self.dtype, self.profile))
