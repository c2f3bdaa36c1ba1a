"""Every way in which a Hub, or what lies between, is made to misbehave, and what has to become of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from hub_server import Fault, HubServer
from safetensors.numpy import save

from harness.cases import Entry, Verdict, Weights
from harness.hub.client import Patience

PATIENCE = Patience(
    tries=3, first_wait=0.05, longest_wait=0.2, longest_retry_after=2, connect=2, answer=1, grace=1, slowest=1000
)
"""As in earnest, but for people who do not want to wait."""
TENSOR = np.arange(5000, dtype=np.float32)
CONFIG = json.dumps({"model_type": "bert"}).encode()
FILES = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": save({"weight": TENSOR})}
LARGE = {**FILES, "model.safetensors": save({"weight": np.zeros(10**6, dtype=np.float32)})}
QUOTA = 800_000
"""Room for 38 of the checkpoints, and for none of the large one."""
_WEIGHTS = "GET .*/model.safetensors"


@dataclass(frozen=True)
class Case:
    """A repository that misbehaves. `verdict` is what has to become of it, "" where it can be had all the same.

    `requests` are those that it may cost at most.
    """

    name: str
    verdict: Verdict | str
    faults: tuple[Fault, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)
    requests: int = 3 + 7
    moved_to: str = ""


def cases() -> list[Case]:
    """A case of each kind, its faults not yet done. A sound model costs seven requests."""

    def status(number: int, times: int | None = None, **more: object) -> tuple[Fault, ...]:
        return (Fault("status", times, status=number, **more),)

    soon = {"Retry-After": "1"}
    return [
        Case("gated", Verdict.GATED, status(401, code="GatedRepo"), requests=1),
        Case("forbidden", Verdict.GATED, status(403), requests=1),
        Case("not-found", Verdict.GONE, status(404, code="RepoNotFound"), requests=1),
        Case("not-found-or-private", Verdict.GONE, status(401, code="RepoNotFound"), requests=1),
        Case("no-such-revision", Verdict.GONE, status(404, code="RevisionNotFound"), requests=1),
        Case("disabled", Verdict.GONE, status(403, message="Access to this resource is disabled."), requests=1),
        Case("no-config", Verdict.GONE, files={"model.safetensors": FILES["model.safetensors"]}, requests=1),
        Case("file-gone", Verdict.GONE, status(404, code="EntryNotFound", on="HEAD .*/tokenizer.json")),
        Case("too-many-once", "", status(429, 1, headers=soon)),
        Case("too-many-until-a-date", "", status(429, 1, headers={"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"})),
        Case("too-many-window", "", status(429, 1, headers={"RateLimit": '"api";r=0;t=1'})),
        Case("too-many", Verdict.RATE_LIMITED, status(429), requests=3),
        Case("too-many-for-long", Verdict.RATE_LIMITED, status(429, headers={"Retry-After": "3600"}), requests=1),
        Case("unavailable-twice", "", status(503, 2)),
        Case("broken", Verdict.HUB_ERROR, status(500), requests=3),
        Case("broken-store", Verdict.HUB_ERROR, status(502, on=_WEIGHTS)),
        Case("hangs", Verdict.HUB_TIMEOUT, (Fault("hang"),), requests=3),
        Case("hangs-once", "", (Fault("hang", 1),)),
        Case("stalls", Verdict.HUB_TIMEOUT, (Fault("stall", on=_WEIGHTS),)),
        Case("drips", Verdict.HUB_TIMEOUT, (Fault("drip", on=_WEIGHTS),)),
        Case("cut-off", Verdict.TRUNCATED, (Fault("cut", on=_WEIGHTS),)),
        Case("cut-off-once", "", (Fault("cut", 1, on=_WEIGHTS),)),
        Case("half-a-file", Verdict.TRUNCATED, (Fault("short", on=_WEIGHTS),)),
        Case("other-bytes", Verdict.WRONG_HASH, (Fault("spoil", on=_WEIGHTS),)),
        Case("other-config", Verdict.WRONG_HASH, (Fault("spoil", on="GET .*/config.json"),)),
        Case("other-bytes-once", "", (Fault("spoil", 1, on=_WEIGHTS),)),
        Case("renamed", "", (Fault("move", to="sound/new-name"),), requests=14, moved_to="sound/new-name"),
        Case("in-circles", Verdict.HUB_ERROR, (Fault("circle"),), requests=PATIENCE.requests),
        Case("not-a-hub", Verdict.HUB_ERROR, (Fault("garbage"),)),
        Case("no-commit", Verdict.HUB_ERROR, (Fault("unnamed"),)),
        Case("only-pickles", Verdict.NO_SAFETENSORS, files={"config.json": CONFIG, "pytorch_model.bin": b"x" * 99}),
        Case("beyond-quota", Verdict.DISK_FULL, files=LARGE, requests=1),
    ]


def entry(model_id: str, weights: Weights = Weights.HUB, revision: str = "") -> Entry:
    """An entry whose model lies in a repository of the server."""
    return Entry(model_id, revision, "transformers", "bert", "BertModel", "text-encoder", "", None, "smoke", weights)


def served(hub: HubServer, sound: int) -> dict[str, Case]:
    """Serve a repository for each case and so many sound ones; what has to become of each."""
    hub.add("sound/new-name", FILES)
    expected = {f"sound/number-{number}": Case("", "", requests=7) for number in range(sound)}
    expected |= {f"faulty/{case.name}": case for case in cases()}
    for repo, case in expected.items():
        hub.add(repo, dict(case.files), *case.faults)
    return expected
