"""Of the faults that a backend can have, how many does the harness see?

Each fault of the catalogue (`tests/faults`) is put into the real target under architectures that execute its
operator. A pair counts where the fault changes any output by more than ten times the CPU's noise in a mode and phase
it lives in; it is detected where the verdict blames the backend. Pairs below that are listed, and so are faults that
change no value at all by their nature (a silent fallback to the CPU), each by how many architectures saw them.

    detection_rate = detected pairs / pairs that count

Where a wrong result is blamed on an operator, that should be the faulty one:

    first_bad_op_share = pairs in which it is / pairs that count, end in a wrong result, and have faulty kernels

Without `--mode`: strict eager, and compiled for the faults of compilers. `--out FILE` keeps a line for each pair;
what the file has already is not measured again.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import math
import os
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import targets
from harness.cases import Case, Dtype, Entry, Group, Mode, Phase, Profile, Stage, Verdict
from harness.derived import derived_list
from harness.jobs import JobRunner, Limits, death
from harness.jobs import cache as caches
from harness.jobs.attempts import WRONG
from harness.jobs.payload import of_case
from harness.jobs.processes import environment
from harness.jobs.supervisor import Server, supervise
from harness.pytest_plugin.settings import default_cache
from model_lists import DERIVED_LIST, load_list

if TYPE_CHECKING:
    from catalogue import Fault

    from harness.targets.base import Target

FACTOR = 10.0
"""Times the CPU's noise that an output must change by for a pair to count."""
EACH = 3
"""Architectures under which a fault is tried: as many as it changes something in."""
FEW, MOST = 6, 12
"""Cases of a lane (a phase in a mode) that are asked at once what they execute; and, but for a strict eager forward
pass, at all: to compile is slow, and the families are alike."""
ARCHITECTURES = (
    "bert", "llama", "vit", "t5", "mixtral", "resnet", "bloom", "wav2vec2", "gpt2", "whisper", "mamba2", "deberta-v2",
    "segformer", "deepseek_v3", "clip", "convnext", "recurrent_gemma", "swin", "fnet", "convbert", "qwen2_vl",
    "mpnet", "gpt_oss", "rwkv", "yolos", "patchtst", "timesfm", "cohere2", "falcon", "dpt", "encodec",
    "dac", "sam2_hiera_det_model",
)  # fmt: skip
"""Small ones of every family, which between them execute the operators of the catalogue."""
LIMITS = Limits(compile=1200, run=1200)
"""A process is a series of trials, and none may be taken for a hang because the machine is busy."""
PATHS = (Path(__file__).parent, Path(__file__).parents[1] / "tests" / "faults")


class Laboratory:
    """Runs cases with and without faults for one thread, in processes of the target's server."""

    def __init__(self, target: Target, cache: Path, servers: Path, limits: Limits) -> None:
        self._target, self._cache, self._servers, self._limits = target, cache, servers, limits
        self._runner = JobRunner(target, cache, limits=limits, servers=servers)
        self._server: Server | None = None

    def close(self) -> None:
        """End its processes."""
        self._runner.close()
        if self._server is not None:
            self._server.close()

    def census(self, case: Case) -> dict[str, Any]:
        """The verdict without a fault, and how often the case executes each operator of the catalogue."""
        record = self._runner.run(case)
        told = {"case": case.id, "verdict": record.verdict, "message": record.message, "operators": {}}
        if record.verdict is Verdict.PASS:
            outcome = self._run(case, {})
            told["operators"] = (outcome.result or {}).get("operators", {})
            if not told["operators"]:
                told |= {"verdict": Verdict.HARNESS_ERROR, "message": death.of_death(outcome, self._target)[1]}
                if error := (outcome.result or {}).get("error"):
                    told["message"] = death.one_line(error)
        return told

    def measure(self, case: Case, faults: list[str]) -> Iterable[dict[str, Any]]:
        """A row for each fault, one that kills the process included."""
        left = list(faults)
        while left:
            with tempfile.TemporaryDirectory() as scratch:
                rows = Path(scratch) / "rows.jsonl"
                outcome = self._run(case, {"faults": left, "rows": str(rows)})
                done = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
            for row in done:
                left.remove(row["fault"])
                yield self._settled(case, row) | {"case": case.id}
            if left:
                culprit = left.pop(0)
                if error := (outcome.result or {}).get("error"):
                    verdict, message = death.of_error(error, outcome.stage, self._target), error["detail"][-2000:]
                else:
                    verdict, message = death.of_death(outcome, self._target)
                yield {
                    "case": case.id, "fault": culprit, "calls": None, "change": math.inf, "where": "the process",
                    "verdict": verdict, "message": message, "leaf": "", "restored": True,
                }  # fmt: skip

    def _settled(self, case: Case, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the verdict that is left of a wrong result after the harness's second look at it."""
        if row["verdict"] not in WRONG:
            return row
        self._runner.processes.fault = row["fault"]
        record = self._runner.run(case)
        self._runner.processes.fault = ""
        return row | {
            "verdict": record.verdict,
            "message": record.message[:300],
            "operator": record.blame.operator,
        }

    def _run(self, case: Case, more: dict[str, Any]) -> Any:
        folder = caches.reference_folder(self._cache, case, 0)
        meta = caches.read_meta(folder) or {}
        checkpoint = meta.get("checkpoint", "")
        payload = {
            "case": of_case(case),
            "folder": str(folder),
            "checkpoint": checkpoint,
            "seed": 0,
            "watch": "",
            "fault": "",
        }
        server = self._joined()
        child = server.fork("mutation_job:measure", payload | more)
        outcome = supervise(server, child, self._limits, Stage.IMPORT, lambda stage: None)
        if outcome.status is None:
            server.close()
            self._server = None
        return outcome

    def _joined(self) -> Server:
        if self._server is None:
            settings = lambda: environment() | self._target.environment(self._cache)  # noqa: E731
            name = self._target.name
            self._server = Server.join(name, "harness.jobs.preload:target", name, settings, self._servers)
            self._server.ready()
        return self._server


class Notes:
    """Rows kept in a file as they come, and those that it had before."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        with self._lock:
            self.rows.append(row)
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def census(self) -> dict[str, dict[str, Any]]:
        """What each case executes, by its id."""
        return {row["case"]: row for row in self.rows if "operators" in row}

    def pairs(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What each case made of each fault."""
        return {(row["case"], row["fault"]): row for row in self.rows if "fault" in row}


def lanes(fault: Fault, modes: tuple[Mode, ...] | None) -> list[tuple[Phase, Mode]]:
    """In which phase and modes a fault is tried."""
    if modes is None:
        chosen = [Mode.STRICT_EAGER] if Mode.STRICT_EAGER in fault.modes else [*fault.modes]
    else:
        chosen = [mode for mode in modes if mode in fault.modes]
    return [(phase, mode) for phase in fault.phases for mode in chosen]


class Plan:
    """What to do next, until each fault has `each` pairs that count or there is nothing left to try it under."""

    def __init__(
        self, faults: dict[str, Fault], cases: list[Case], notes: Notes, modes: tuple[Mode, ...] | None, each: int
    ) -> None:
        self.cases = cases
        self._faults, self._notes, self._modes, self._each = faults, notes, modes, each

    def trials(self) -> dict[str, list[str]]:
        """For each case of which it is known what it executes, the faults to try under it.

        Where to begin differs from fault to fault, and is the same every time.
        """
        pairs = self._notes.pairs()
        found: dict[str, list[str]] = defaultdict(list)
        for name, lane, missing in self._lacking():
            fit = self._fit(name, lane)
            start = int(hashlib.sha256(name.encode()).hexdigest(), 16) % max(len(fit), 1)
            left = [case for case in fit[start:] + fit[:start] if (case.id, name) not in pairs]
            for case in left[:missing]:
                found[case.id].append(name)
        return found

    def unknown(self) -> list[Case]:
        """The next few cases of each lane in which a fault still lacks some."""
        census = self._notes.census()
        found = []
        for lane in dict.fromkeys(lane for _, lane, _ in self._lacking()):
            own = [case for case in self.cases if (case.phase, case.mode) == lane]
            known = sum(case.id in census for case in own)
            most = len(own) if lane == (Phase.FORWARD, Mode.STRICT_EAGER) else MOST
            found += [case for case in own if case.id not in census][: min(FEW, max(most - known, 0))]
        return found

    def _lacking(self) -> Iterator[tuple[str, tuple[Phase, Mode], int]]:
        pairs = self._notes.pairs()
        for name, fault in self._faults.items():
            for lane in lanes(fault, self._modes):
                rows = [row for case in self._fit(name, lane) if (row := pairs.get((case.id, name)))]
                missing = self._each - sum(fault.behind_the_values or _counts(row) for row in rows)
                if missing > 0:
                    yield name, lane, missing

    def _fit(self, name: str, lane: tuple[Phase, Mode]) -> list[Case]:
        census, fault = self._notes.census(), self._faults[name]
        return [c for c in self.cases if (c.phase, c.mode) == lane and _executes(fault, census.get(c.id))]


def _executes(fault: Fault, known: dict[str, Any] | None) -> bool:
    if known is None or known["verdict"] != Verdict.PASS:
        return False
    return not fault.kernels or any(operator in known["operators"] for operator in fault.kernels)


def main() -> None:
    """Measure, and print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="tpu")
    parser.add_argument("--mode", action="append", help="mode in which every fault that lives in it is tried")
    parser.add_argument("--fault", action="append", help="only faults whose name fits this glob")
    parser.add_argument("--architecture", action="append", help="model types (default: a chosen list)")
    parser.add_argument("--each", type=int, default=EACH, help=f"architectures per fault (default: {EACH})")
    parser.add_argument("--profile", default="padded")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--out", type=Path, help="keep each pair here, and measure what it lacks")
    options = parser.parse_args()
    sys.path[:0] = [str(path) for path in PATHS]
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, PATHS), os.getcwd(), os.environ.get("PYTHONPATH", "")])
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    from catalogue import every_fault

    faults = every_fault()
    if options.fault:
        faults = {
            name: one for name, one in faults.items() if any(fnmatch.fnmatch(name, glob) for glob in options.fault)
        }
        if not faults:
            parser.error(f"no fault is called {', '.join(options.fault)}")
    modes = tuple(Mode(word) for word in options.mode) if options.mode else None
    wanted = sorted({lane for fault in faults.values() for lane in lanes(fault, modes)})
    cases = _cases(options.architecture or ARCHITECTURES, wanted, Profile(options.profile), options.cache.absolute())
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        notes = Notes(options.out or Path(scratch) / "notes.jsonl")
        _survey(notes, Plan(faults, cases, notes, modes, options.each), options, Path(scratch))
        _print(faults, cases, notes)


def _cases(types: Iterable[str], wanted: list[tuple[Phase, Mode]], profile: Profile, cache: Path) -> list[Case]:
    """Those of the smoke list's models of these types; of a type that it lacks, what transformers registers."""
    entries: dict[str, Entry] = {}
    for name in ("smoke", DERIVED_LIST):
        if name == DERIVED_LIST and set(types) <= entries.keys():
            break
        for entry in load_list(name if name != DERIVED_LIST else derived_list(cache)):
            if not entry.package:
                entries.setdefault(entry.model_type, entry)
    return [
        Case(entries[name], phase, mode, Dtype.FLOAT32, profile)
        for name in types
        for phase, mode in wanted
        if phase in entries[name].phases
    ]


def _survey(notes: Notes, plan: Plan, options: argparse.Namespace, servers: Path) -> None:
    """Ask cases what they execute, and try faults under them, until the plan has no more; several side by side."""
    target = targets.resolve(options.target)
    own = threading.local()
    laboratories: list[Laboratory] = []

    def laboratory() -> Laboratory:
        if not hasattr(own, "laboratory"):
            own.laboratory = Laboratory(target, options.cache.absolute(), servers, LIMITS)
            laboratories.append(own.laboratory)
        return own.laboratory

    def ask(case: Case) -> None:
        row = laboratory().census(case)
        notes.add(row)
        print(f"without a fault {row['verdict']} {case.id}", flush=True)

    def measure(case: Case) -> None:
        for row in laboratory().measure(case, trials[case.id]):
            notes.add(row)
            print(f"{_told(row):24} {row['change']:9.3g} {row['fault']} {case.id}", flush=True)

    try:
        with ThreadPoolExecutor(options.workers) as pool:
            while (trials := plan.trials()) or (unknown := plan.unknown()):
                if trials:
                    list(pool.map(measure, [case for case in plan.cases if case.id in trials]))
                else:
                    list(pool.map(ask, unknown))
    finally:
        for one in laboratories:
            one.close()


def _print(faults: dict[str, Fault], cases: list[Case], notes: Notes) -> None:
    asked = {case.id for case in cases}
    pairs = {(case, name): row for (case, name), row in notes.pairs().items() if case in asked and name in faults}
    by_fault: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (_, name), row in pairs.items():
        by_fault[name].append(row)
    print(f"\n{'fault':64} tried counts seen  median change  verdicts")
    for name, fault in faults.items():
        rows = by_fault[name]
        counts = [row for row in rows if _counts(row)]
        seen = [row for row in rows if _seen(row)]
        changes = sorted(row["change"] for row in counts)
        middle = f"{changes[len(changes) // 2]:.3g}" if changes else "-"
        verdicts = ", ".join(f"{verdict} {n}" for verdict, n in Counter(map(_told, rows)).most_common())
        mark = " (changes no value)" if fault.behind_the_values else ""
        print(f"{name:64} {len(rows):5} {len(counts):6} {len(seen):4}  {middle:>13}  {verdicts}{mark}")
    ordinary = {name for name, fault in faults.items() if not fault.behind_the_values}
    counted = [row for (_, name), row in pairs.items() if name in ordinary and _counts(row)]
    below = [row for (_, name), row in pairs.items() if name in ordinary and not _counts(row)]
    _list("not detected", [row for row in counted if not _seen(row)])
    wrong = {
        (case, name): row
        for (case, name), row in pairs.items()
        if name in ordinary and faults[name].kernels and _counts(row) and row["verdict"] in WRONG
    }
    astray = [row for (_, name), row in wrong.items() if not _named(row, faults[name])]
    print(f"\nanother operator is blamed than the faulty one, or none: {len(astray)}")
    for row in sorted(astray, key=lambda row: (row["fault"], row["case"])):
        print(f"  {row['fault']}  {row['case']}: {row['operator'] or 'none'}: {row['message']}")
    _list(f"changes no output by more than {FACTOR:g} times the CPU's noise", below)
    _list("not gone when it was taken out", [row for row in pairs.values() if not row["restored"]])
    sick = [row for case, row in notes.census().items() if row["verdict"] != Verdict.PASS and case in asked]
    print(f"\nnot tried, since they do not pass without a fault: {len(sick)}")
    for row in sick:
        print(f"  {row['case']}: {row['verdict']} {row['message'][:160]}")
    untried = [name for name in faults if not by_fault[name]]
    print(f"\nfaults that no architecture executes: {', '.join(untried) or 'none'}")
    unseen = [name for name in faults if name not in untried and not any(_seen(row) for row in by_fault[name])]
    print(f"faults that no architecture sees: {', '.join(unseen) or 'none'}")
    print(f"figure: faults {len(faults)} count")
    print(f"figure: faults_seen_by_some_architecture {len(faults) - len(untried) - len(unseen)} count")
    print(f"figure: mutation_pairs {len(counted)} count")
    print(f"figure: mutation_pairs_below_noise {len(below)} count")
    if counted:
        print(f"figure: detection_rate {sum(map(_seen, counted)) / len(counted):.4f} ratio")
    if wrong:
        print(f"figure: first_bad_op_share {1 - len(astray) / len(wrong):.4f} share")
    print(f"figure: mutation_failing_without_a_fault {len(sick)} count")


def _counts(row: dict[str, Any]) -> bool:
    return row["change"] > FACTOR


def _seen(row: dict[str, Any]) -> bool:
    return row["verdict"] is not None and Verdict(row["verdict"]).group is Group.BACKEND


def _named(row: dict[str, Any], fault: Fault) -> bool:
    return _plain(row["operator"]) in map(_plain, fault.kernels)


def _plain(operator: str) -> str:
    """`add` of `aten.add_.Tensor`, `add.Tensor` and `add_`."""
    parts = operator.rpartition("::")[2].removeprefix("aten.").split(".")
    return parts[0].strip("_")


def _told(row: dict[str, Any]) -> str:
    return row["verdict"] or "no change"


def _list(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}: {len(rows)}")
    for row in sorted(rows, key=lambda row: (row["fault"], row["case"])):
        where = f" in {row['where']}" if row["where"] else ""
        print(f"  {row['fault']}  {row['case']}: {_told(row)}, {row['change']:.3g} times the noise{where}")


if __name__ == "__main__":
    main()
