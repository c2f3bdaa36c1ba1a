"""What a run came to: totals per mode, every non-pass with its reason, what is missing, where the results are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cases import Case, Group, Phase, Stage, Verdict
from harness.cli import clusters
from harness.cli.style import plain, verdict_style
from results import open_run
from results.expected import Outcome, outcome
from results.lookup import last_rows
from results.store import read

if TYPE_CHECKING:
    from harness.pytest_plugin.owner import RunOwner
    from harness.targets.base import Target

_SHOWN = ("case_id", "target", "phase", "mode", "dtype", "verdict", "stage", "message", "worst_ratio", "recorded_at")
_CAUSES_TOLD = 10
_MEASURED = (Group.PASS, Group.BACKEND, Group.MODEL)


@dataclass(frozen=True)
class Summary:
    """`measured`: at least one case says something about a model or the backend; missing cases are not judged here."""

    measured: bool
    all_expected: bool


def rows_of(store: Path, run_id: str) -> list[dict[str, Any]]:
    """What is shown of each result of a run, in plan order. Raises StoreError."""
    return read(open_run(store, run_id), _SHOWN)[0].to_pylist()


def last_verdicts(store: Path, cases: Sequence[Case], target: str) -> dict[str, str]:
    """The last verdict recorded on a target for each case that has one, from the newest runs backwards."""
    wanted = {case.id for case in cases}
    found: dict[str, str] = {}

    def is_lacking(case_id: str) -> bool:
        return case_id in wanted and case_id not in found

    for _, rows in last_rows(store, is_lacking, ("case_id", "target", "verdict")):
        found |= {row["case_id"]: row["verdict"] for row in rows if row["target"] == target}
        if len(found) == len(wanted):
            break
    return found


def print_summary(
    owner: RunOwner, target: Target, before: Mapping[str, str] | None, problems: Sequence[str]
) -> Summary:
    """Print what the owner's run came to, resumed parts included."""
    session = owner.zoo
    console = Console()
    rows = rows_of(session.store, session.run.id)
    outcomes = {
        row["case_id"]: outcome(
            Verdict(row["verdict"]), Stage(row["stage"]), session.expectations.about(row["case_id"])
        )[0]
        for row in rows
    }
    console.print()
    console.print(_totals(rows))
    if before is not None:
        for row in rows:
            console.print(_comparison(row, before.get(row["case_id"])), soft_wrap=True)
    failures = [row for row in rows if row["verdict"] != Verdict.PASS or outcomes[row["case_id"]] != Outcome.EXPECTED]
    for row in failures:
        line = Text.assemble((row["verdict"], verdict_style(row["verdict"])), f" ({outcomes[row['case_id']]}) ")
        line.append_text(plain(row["case_id"]))
        line.append_text(plain(f"  {row['stage']}: {row['message'] or Verdict(row['verdict']).meaning}", "dim"))
        console.print(line, soft_wrap=True)
    shared = [cause for cause in clusters.of_run(session.run) if len(cause.types) > 1]
    if shared:
        console.print("\ncauses that several architectures share (`zoo rerun --cluster ID` runs one's cases again):")
        for told in clusters.lines(shared, _CAUSES_TOLD):
            console.print(plain(told), soft_wrap=True)
    for problem in problems:
        console.print(plain(problem, "red"), soft_wrap=True)
    console.print()
    for line in owner.summary():
        console.print(plain(line), soft_wrap=True)
    if target.emulated:
        console.print(plain("A stand-in executed this, not the backend's own hardware.", "yellow"))
    return Summary(
        measured=any(Verdict(row["verdict"]).group in _MEASURED for row in rows),
        all_expected=all(ended is Outcome.EXPECTED for ended in outcomes.values()),
    )


def _totals(rows: Sequence[Mapping[str, Any]]) -> Table:
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for row in sorted(rows, key=lambda row: list(Phase).index(row["phase"])):
        counts.setdefault((row["phase"], row["mode"], row["dtype"]), Counter())[row["verdict"]] += 1
    seen = [verdict for verdict in Verdict if any(verdict in count for count in counts.values())]
    table = Table("phase", "mode", "dtype", "cases")
    for verdict in seen:
        table.add_column(Text(verdict, verdict_style(verdict)), justify="right")
    for named, count in counts.items():
        numbers = [str(count[verdict]) if count[verdict] else "" for verdict in seen]
        table.add_row(*named, str(count.total()), *numbers)
    return table


def _comparison(row: Mapping[str, Any], last: str | None) -> Text:
    line = plain(last or "never run", verdict_style(last) if last else "dim")
    line.append(" -> ")
    line.append(row["verdict"], verdict_style(row["verdict"]))
    line.append_text(plain(f"  {row['case_id']}"))
    return line
