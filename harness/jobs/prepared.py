"""What a worker knows of a case's reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.cases import Evidence, Given, Stage, Verdict
from harness.jobs.supervisor import Outcome


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case's reference as far as the worker needs to know it: where it is, or why there is none.

    `facts` are what a record says of it, `seconds` those of the stages it took now. `verdict` is why there is none,
    with `why` a record's stage, message and the rest of the evidence; None where there is one.
    """

    checkpoint: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    why: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, meta: dict[str, Any], *, cached: bool) -> Prepared:
        """What a reference job said of the reference it made, now or, `cached`, at another time."""
        facts = {
            "evidence": Evidence(meta["evidence"]),
            "synthetic_params": meta["parameters"],
            "weights_sha256": meta["weights_sha256"],
            "inputs": Given(meta["inputs"]),
            "inputs_sha256": meta["inputs_sha256"],
            "structure_sha256": meta["structure_sha256"],
            "truth": meta["truth"],
            "operators": tuple(meta["operators"]),
            "reference_cached": cached,
        }
        if meta["sick"]:
            verdict, message = meta["sick"]
            why = {"stage": Stage.REFERENCE, "message": message}
            return cls(meta["checkpoint"], facts, verdict=Verdict(verdict), why=why)
        return cls(meta["checkpoint"], facts)

    @classmethod
    def failed(cls, verdict: Verdict, outcome: Outcome, message: str, detail: str = "") -> Prepared:
        """None, since its process ended as `outcome`."""
        why = {
            "stage": outcome.stage,
            "message": message,
            "detail": detail,
            "log": outcome.log,
            "signal": outcome.signal,
            "exit_code": None if detail else outcome.exit_code,
        }
        return cls(seconds=outcome.seconds, verdict=verdict, why=why)
