"""From the rows of a run to expectations: what failed, as entries of a file, and how a file has to change for it."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from harness.cases import UNFETCHED_TODAY, Dtype, Group, Mode, Phase, Profile, Stage, Verdict
from model_lists.expectations import Expectation, Expectations
from model_lists.rewriting import Changes, rendered, rewritten
from results.expected import Outcome, outcome

TRANSIENT = UNFETCHED_TODAY | {
    Verdict.BACKEND_UNAVAILABLE,
    Verdict.DEVICE_BUSY,
    Verdict.OOM_HOST,
    Verdict.DISK_FULL,
    Verdict.HARNESS_ERROR,
}
"""Verdicts that speak of the machine that day, and that nobody should come to expect."""

_FLAKY_FOR = datetime.timedelta(days=90)
_REASON_CHARACTERS = 300
_FIELDS = ("phase", "mode", "dtype", "profile")
COLUMNS = ("case_id", "entry_id", "phases", *_FIELDS, "verdict", "stage", "message")
"""What is asked of the rows of a run here."""

Row = Mapping[str, Any]


def failures(rows: Iterable[Row], modes: Sequence[Mode], on: datetime.date) -> list[Expectation]:
    """Expectations, added `on` that day, that say of all non-passes among `rows` of a run how they ended.

    A model's cases that ended alike share a glob where they are all that it can have: all its phases, all of the
    target's `modes`, all dtypes or all profiles. Nothing is said of a case that has no row.
    """
    alike: dict[tuple[str, Verdict, Stage], list[Row]] = defaultdict(list)
    for row in rows:
        if Verdict(row["verdict"]).group is not Group.PASS:
            alike[row["entry_id"], Verdict(row["verdict"]), Stage(row["stage"])].append(row)
    return [
        Expectation(
            case=glob,
            verdict=verdict,
            reason=_reason(members[0], verdict),
            added=on,
            stage=stage,
            expires=on + _FLAKY_FOR if verdict is Verdict.FLAKY else None,
        )
        for (_, verdict, stage), members in alike.items()
        for glob in globs(members, modes)
    ]


def as_file(found: Iterable[Expectation], target: str, run_id: str) -> str:
    """The text of a run's own `failures.toml`."""
    head = f"# What did not pass in run {run_id}, as expectations: `zoo expect update --from` this file or the run.\n"
    return "\n".join([f'{head}target = "{target}"\n', *map(rendered, found)])


def globs(rows: Sequence[Row], modes: Sequence[Mode]) -> list[str]:
    """Few globs over the ids of `rows`, all of one entry, that match no other case that the entry can have."""
    left = {tuple(row[name] for name in _FIELDS): None for row in rows}
    wanted = frozenset(left)
    phases = (rows[0]["phases"] or Phase.FORWARD).split()
    domains = [tuple(map(str, domain)) for domain in (phases, modes, Dtype, Profile)]
    found = []
    while left:
        first = next(iter(left))
        for starred in _subsets(len(_FIELDS)):
            box = [domains[n] if n in starred else (first[n],) for n in range(len(_FIELDS))]
            if wanted.issuperset(product(*box)):
                break
        for covered in product(*box):
            left.pop(covered, None)
        words = ["*" if n in starred else first[n] for n in range(len(_FIELDS))]
        found.append(re.sub(r"\*(/\*)+", "*", "/".join([_escaped(rows[0]["entry_id"]), *words])))
    return found


def brought_up_to_date(
    text: str, parse: Callable[[str], Expectations], rows: Sequence[Row], modes: Sequence[Mode], on: datetime.date
) -> str:
    """The text of an expectations file after what the `rows` of a run show.

    Entries that pass now, or fail in another way, go, or are narrowed to the cases of the run for which they still
    hold; failures that nothing speaks of are added. What did not run, and what speaks of the machine that day, changes
    nothing; nor is an expired entry given a later day. `parse` reads the text, and may raise ExpectationError.
    """
    told = [row for row in rows if Verdict(row["verdict"]) not in TRANSIENT]
    # An entry that goes may uncover an earlier one.
    while narrowed := _narrowed(parse(text), rows, modes):
        text = rewritten(text, Changes(narrowed=narrowed))
    known = parse(text)
    new = [row for row in told if _ended(row, known) is Outcome.UNEXPECTED]
    return with_added(text, known, failures(new, modes, on))


def with_added(text: str, known: Expectations, new: Iterable[Expectation]) -> str:
    """The text of the file of `known` with more entries, each before the first that is an exception to it."""
    places: dict[int, list[Expectation]] = defaultdict(list)
    for entry in new:
        exceptions = (number for number, one in enumerate(known) if one.within(entry))
        places[next(exceptions, len(known))].append(entry)
    return rewritten(text, Changes(added=places)) if places else text


def _narrowed(known: Expectations, rows: Iterable[Row], modes: Sequence[Mode]) -> dict[int, list[str]]:
    """For each entry that does not hold for all its cases, by its number, globs over those for which it does."""
    governed: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if about := known.about(row["case_id"]):
            governed[about.where].append(row)
    changes = {}
    for number, entry in enumerate(known):
        about = governed.get(entry.where, [])
        keep = [
            row
            for row in about
            if Verdict(row["verdict"]) in TRANSIENT or _ended(row, known) in (Outcome.EXPECTED, Outcome.EXPIRED)
        ]
        if len(keep) < len(about):
            models: dict[str, list[Row]] = defaultdict(list)
            for row in keep:
                models[row["entry_id"]].append(row)
            changes[number] = [glob for members in models.values() for glob in globs(members, modes)]
    return changes


def _ended(row: Row, known: Expectations) -> Outcome:
    return outcome(Verdict(row["verdict"]), Stage(row["stage"]), known.about(row["case_id"]))[0]


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """All subsets of the first numbers, the largest first."""
    for size in range(count, -1, -1):
        yield from combinations(range(count), size)


def _reason(row: Row, verdict: Verdict) -> str:
    """A row's message as one printable line."""
    text = " ".join((row["message"] or verdict.meaning).split())
    return "".join(c if c.isprintable() else "�" for c in text)[:_REASON_CHARACTERS] or verdict.meaning


def _escaped(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)
