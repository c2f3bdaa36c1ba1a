"""`zoo expect`: look at, check and bring up to date what is known to fail."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import EXIT_NOTHING, EXIT_OK, EXIT_UNEXPECTED, options

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_lists.expectations import Expectation, Expectations

app = typer.Typer(help="Look at, check and bring up to date what is known to fail.", no_args_is_help=True)


@app.command("update")
def update(
    source: Annotated[
        str,
        typer.Option("--from", metavar="RUN|FILE", help="A run (id, `latest`, a day), or its failures.toml."),
    ],
    store: options.Store = None,
    expectations: options.Expectations = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change and stop.")] = False,
) -> None:
    """Bring the file of a run's target up to date with the run; comments and order stay.

    Failures that nobody knew of are added, in one glob where a model's cases all fail alike. Entries whose cases pass
    now, or fail otherwise, go, or are narrowed to those of the run's cases for which they hold. A failures.toml does
    not say what passed: from one, entries are only added and changed.
    """
    from model_lists.expectations import FOLDER, file_of
    from results import default_store
    from results.files import write_atomically

    place = expectations or FOLDER
    if source.endswith(".toml"):
        target, change = _from_file(Path(source))
    else:
        target, change = _from_run(Path(store or default_store()), source)
    path = file_of(target, place)
    before = _text(path)
    after = change(before or f'target = "{target}"\n', path)
    if dry_run:
        _print_difference(before, after, path)
    elif before == after:
        print(f"{path}: nothing to change")
    else:
        write_atomically(path, after)
        print(f"{path}: {_count(before)} entries before, {_count(after)} now")


@app.command("check")
def check(
    lists: options.Lists = None,
    cache: options.Cache = None,
    expectations: options.Expectations = None,
) -> None:
    """Check files of expectations without running anything, against the models of the lists.

    Exit code 0: all is well. 1: an entry is expired, or speaks of no case of the lists, nor of an architecture that
    the library knows. 2: a file is malformed or contradicts itself.
    """
    from harness.cases import Case, Dtype, Profile
    from harness.derived import registered_word
    from harness.plan import select
    from harness.scope import never_matching
    from harness.targets import TARGETS, UnknownTarget, resolve
    from model_lists import DERIVED_TIERS, load_list
    from model_lists.expectations import ExpectationError
    from results.expected import Outcome, outcome

    entries = select(entry for path in options.list_paths(lists, cache=cache) for entry in load_list(path))
    derived = any(entry.tier in DERIVED_TIERS for entry in entries)
    code = EXIT_OK
    for path in files_of(expectations):
        try:
            target, known = read_file(path)
            if target not in TARGETS:
                resolve(target)
            modes = resolve(target).modes
            cases = [Case(e, *rest).id for e in entries for rest in product(e.phases, modes, Dtype, Profile)]
            known.check(cases)
        except (ExpectationError, UnknownTarget) as error:
            print(f"ERROR: {error}", file=sys.stderr)
            code = EXIT_NOTHING
            continue
        idle = never_matching(known, cases, entries, modes, None if derived else registered_word)
        red = [(entry, Outcome.EXPIRED) for entry in known if entry.expired and not entry.inert]
        red += [(entry, outcome(None, None, entry)[0]) for entry in idle]
        for entry, word in red:
            print(f"{path.parent / entry.where}: {word}: {entry.case}")
            code = code or EXIT_UNEXPECTED
        print(f"{path}: {len(known)} entries, {sum(bool(entry.inert) for entry in known)} of them inert")
    raise typer.Exit(code)


@app.command("list")
def list_expectations(expectations: options.Expectations = None) -> None:
    """List what is known to fail: a table on a terminal, tab-separated lines without a header into a pipe."""
    rows = [
        (target, entry.case, entry.says, state(entry), entry.reason, entry.link)
        for target, known in map(read_file, files_of(expectations))
        for entry in known
    ]
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(" ".join(word.split()) for word in row))
        return
    from rich.console import Console
    from rich.table import Table

    from harness.cli.style import plain

    table = Table("target", "case", "expected", "state", "reason", "link")
    for row in rows:
        table.add_row(*map(plain, row))
    Console().print(table)


def state(entry: Expectation) -> str:
    """Whether an entry is in force, for people."""
    if entry.inert:
        return f"inert: {entry.inert}"
    if entry.expires:
        return f"{'expired' if entry.expired else 'until'} {entry.expires}"
    return "in force"


def files_of(place: Path | None) -> list[Path]:
    """The files of expectations in a folder, or the one that is named. Raises ExpectationError."""
    from model_lists.expectations import FOLDER, file_of

    place = place or FOLDER
    file_of("", place)
    return [place] if place.is_file() else sorted(place.glob("*.toml"))


def read_file(path: Path) -> tuple[str, Expectations]:
    """The target that a file is about, and what it says. Raises ExpectationError."""
    from model_lists.expectations import load_expectations, target_of

    target = target_of(path) or path.stem
    return target, load_expectations(target, path)


def _text(path: Path) -> str:
    from model_lists.expectations import ExpectationError

    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: cannot be read: {error}") from error


def _from_run(store: Path, word: str) -> tuple[str, Callable[[str, Path], str]]:
    """The target of a run, and what turns the text of its file of expectations into that after the run."""
    from harness.targets import resolve
    from harness.versions import PACKAGES
    from model_lists.expectations import ExpectationError, parse
    from results.baseline import find_run
    from results.failures import COLUMNS, brought_up_to_date
    from results.store import read

    run = find_run(store, word)
    facts = run.provenance
    settings = facts.get("settings", {})
    if settings.get("fault"):
        raise ExpectationError(
            f"run {run.id} was broken on purpose with {settings['fault']}: nothing to expect of that"
        )
    target = str(settings.get("target"))
    installed = {name: facts.get("packages", {}).get(name) for name in PACKAGES}
    on = datetime.date.fromisoformat(run.created_at[:10])
    rows = read(run)[0].select(COLUMNS).to_pylist()

    def change(text: str, path: Path) -> str:
        def reading(text: str) -> Expectations:
            return parse(text, path, target, installed=installed)

        after = brought_up_to_date(text, reading, rows, resolve(target).modes, on)
        reading(after).check(row["case_id"] for row in rows)
        return after

    return target, change


def _from_file(source: Path) -> tuple[str, Callable[[str, Path], str]]:
    """The target that a failures.toml names, and what turns the text of its file of expectations into that with it."""
    from harness.records import real_target
    from model_lists.expectations import ExpectationError, load_expectations, parse, target_of
    from model_lists.rewriting import Changes, rewritten
    from results.failures import TRANSIENT, with_added

    target = target_of(source)
    if target is None:
        raise ExpectationError(f'{source}:1: does not say what it is about: write target = "NAME" at its top')
    if real_target(target) != target:
        raise ExpectationError(f"{source}:1: comes from a run that was broken on purpose: nothing to expect of that")
    claims = [entry for entry in load_expectations(target, source) if entry.verdict not in TRANSIENT]

    def change(text: str, path: Path) -> str:
        known = parse(text, path, target)
        new = [claim for claim in claims if not _is_known(claim, known)]
        replaced = {number: () for number, one in enumerate(known) if one.case in {claim.case for claim in new}}
        text = rewritten(text, Changes(narrowed=replaced)) if replaced else text
        after = with_added(text, parse(text, path, target), new)
        parse(after, path, target)
        return after

    return target, change


def _is_known(claim: Expectation, known: Iterable[Expectation]) -> bool:
    about = [one for one in known if not one.inert and claim.within(one)]
    return bool(about) and about[-1].agrees(claim.verdict, claim.stage)


def _print_difference(before: str, after: str, path: Path) -> None:
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(path), f"{path} (updated)"
    )
    sys.stdout.writelines(lines)


def _count(text: str) -> int:
    from model_lists.expectations import starts_of

    return len(starts_of(text.splitlines()))
