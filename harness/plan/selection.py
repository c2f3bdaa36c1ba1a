"""Which cases a run has: choosing entries by the words users type, and multiplying them by modes and the rest."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import product
from typing import TypeVar

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Shipped
from model_lists import RUN_LIBRARIES, tiers_within

_Word = TypeVar("_Word", bound=StrEnum)

_GLOB_CHARACTERS = "*?["
FIELDS_AFTER_ENTRY = 4
"""Parts of a case id behind its entry's id: phase, mode, dtype, profile."""

_LISTED_AT_MOST = 12


class PlanError(ValueError):
    """A word names nothing; the message says which, and what is valid, in one line."""


def select(entries: Iterable[Entry], *, tier: str | None = None, words: Sequence[str] = ()) -> tuple[Entry, ...]:
    """The entries of `tier` (all tiers where None) that at least one of `words` names (all where there are none).

    A tier has the entries of those nested in it too. A word is a model type, a model class, a Hub id, a glob over any
    of these or over an entry's or a case's id, or one of those ids in full. Order and first occurrence are kept; an
    entry that occurs in several lists counts once. Raises PlanError for an unknown tier and for a word that names no
    entry of the tier.
    """
    unique = tuple({entry.id: entry for entry in entries}.values())
    if tier is not None:
        within = tiers_within(tier)
        in_tier = tuple(entry for entry in unique if entry.tier in within)
        if not in_tier:
            raise PlanError(unknown("tier", tier, sorted({entry.tier for entry in unique})))
        unique = in_tier
    if not words:
        return unique
    chosen: set[str] = set()
    for word in words:
        named = {entry.id for entry in unique if _names_entry(word, entry) or _coordinates(word, entry)}
        if not named and _is_glob(word):
            named = {entry.id for entry in unique if _names_some_case(word, entry)}
        if not named:
            raise PlanError(_unknown_model(word, unique))
        chosen |= named
    return tuple(entry for entry in unique if entry.id in chosen)


def plan(
    entries: Iterable[Entry],
    phases: Sequence[Phase],
    modes: Sequence[Mode],
    dtypes: Sequence[Dtype | Shipped],
    profiles: Sequence[Profile],
    words: Sequence[str] = (),
) -> tuple[Case, ...]:
    """Every case of `entries` in the given phases, modes, dtypes and profiles that `words` name (all where none).

    An entry has no case in a phase that it does not have. The cases of one entry follow one another,
    those of one dtype and profile closest together so that they share a reference. A word that is a
    case's full id brings that very case, whatever its phase, mode, dtype and profile. Raises PlanError
    for a word that names no case, or one in a phase that its entry does not have.
    """
    entries = tuple(entries)
    cases: list[Case] = []
    unused = set(words)
    for entry in entries:
        planned: dict[Case, None] = {}
        whole = [word for word in words if _names_entry(word, entry)]
        globs = [word for word in words if _is_glob(word) and word not in whole]
        unused.difference_update(whole)
        for phase, dtype, profile, mode in product(phases, dtypes_of(entry, dtypes), profiles, modes):
            if phase not in entry.phases:
                continue
            case = Case(entry, phase, mode, dtype, profile)
            matching = [word for word in globs if fnmatchcase(case.id, word)]
            unused.difference_update(matching)
            if whole or matching or not words:
                planned[case] = None
        for word in words:
            if found := _coordinates(word, entry):
                _require_phase(entry, found[0], word)
                unused.discard(word)
                planned[Case(entry, *found)] = None
        cases.extend(planned)
    if unused:
        word = min(unused, key=list(words).index)
        if any(_names_some_case(word, entry) for entry in entries):
            asked = "; ".join(", ".join(words) for words in (phases, modes, dtypes, profiles))
            raise PlanError(f"{word!r} names only cases outside the asked phases, modes, dtypes and profiles ({asked})")
        raise PlanError(_unknown_model(word, entries))
    return tuple(cases)


def dtypes_of(entry: Entry, asked: Sequence[Dtype | Shipped]) -> tuple[Dtype, ...]:
    """The dtypes asked for, with the entry's own in place of `Shipped.SHIPPED`, without repetition."""
    own = Dtype(entry.dtype) if entry.dtype else Dtype.FLOAT32
    return tuple(dict.fromkeys(own if dtype is Shipped.SHIPPED else dtype for dtype in asked))


def from_ids(ids: Iterable[str], entries: Iterable[Entry]) -> tuple[Case, ...]:
    """The cases with these ids, in their order.

    Raises PlanError for an id that is none of a case of `entries`, or of one in a phase that its entry does not have.
    """
    known = {entry.id: entry for entry in entries}
    cases = []
    for case_id in ids:
        entry = known.get(case_id.rsplit("/", FIELDS_AFTER_ENTRY)[0])
        found = _coordinates(case_id, entry) if entry else None
        if entry is None or found is None:
            raise PlanError(f"{case_id!r} is not a case of the given model lists")
        _require_phase(entry, found[0], case_id)
        cases.append(Case(entry, *found))
    return tuple(cases)


def names_case(word: str, case: Case) -> bool:
    """Whether a word, as `select` takes it, names a case or its entry."""
    return _names_entry(word, case.entry) or word == case.id or (_is_glob(word) and fnmatchcase(case.id, word))


def lacking(entries: Iterable[Entry], phases: Iterable[Phase]) -> dict[Phase, int]:
    """How many of `entries` do not have a phase, for each of `phases` that some of them lack.

    Raises PlanError where all of them lack it.
    """
    entries = tuple(entries)
    counts = {phase: sum(phase not in entry.phases for entry in entries) for phase in phases}
    for phase, count in counts.items():
        if entries and count == len(entries):
            had = sorted({had for entry in entries for had in entry.phases}, key=list(Phase).index)
            raise PlanError(f"none of the {count} chosen models has the phase {phase} (they have: {', '.join(had)})")
    return {phase: count for phase, count in counts.items() if count}


def not_attempted(entries: Iterable[Entry]) -> dict[str, int]:
    """How many of `entries` are of each library whose models nothing here runs."""
    return dict(Counter(entry.library for entry in entries if entry.library not in RUN_LIBRARIES))


def attempted(entries: Iterable[Entry], words: Sequence[str] = ()) -> tuple[Entry, ...]:
    """The entries whose library's models can be run.

    Raises PlanError where there are others and no such entry, or none that a word in `words` names.
    """
    entries = tuple(entries)
    chosen = tuple(entry for entry in entries if entry.library in RUN_LIBRARIES)
    if len(chosen) == len(entries):
        return chosen
    for word in words or (None,):
        named = entries if word is None else select(entries, words=[word])
        if not any(entry.library in RUN_LIBRARIES for entry in named):
            what = "the chosen models" if word is None else repr(word)
            libraries = " and ".join(not_attempted(named))
            raise PlanError(f"nothing here runs {what} yet: {libraries} models are listed, and not attempted")
    return chosen


def digest(cases: Iterable[Case]) -> str:
    """Content hash of a plan: sha256 hex over its case ids in order, one a line."""
    return hashlib.sha256("".join(f"{case.id}\n" for case in cases).encode()).hexdigest()


def words_of(kind: str, given: Sequence[str], valid: Sequence[_Word]) -> tuple[_Word, ...]:
    """Members of the vocabulary `valid` that the strings in `given` name, without repetition; all where none given.

    Raises PlanError, naming what is valid, for any other string. `kind` is what the user calls it.
    """
    known = {str(word): word for word in valid}
    for word in given:
        if word not in known:
            raise PlanError(unknown(kind, word, list(known)))
    return tuple(dict.fromkeys(known[word] for word in given)) or tuple(valid)


def unknown(kind: str, word: str, valid: Sequence[str]) -> str:
    """One line saying that `word` is not a known `kind`, what it may be a misspelling of, and what is valid."""
    close = _close(word, {name: name for name in valid})
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    shown = ", ".join(valid[:_LISTED_AT_MOST]) + (
        f" and {len(valid) - _LISTED_AT_MOST} more" if len(valid) > _LISTED_AT_MOST else ""
    )
    return f"unknown {kind} {word!r}{meant} (valid: {shown or 'none'})"


def _unknown_model(word: str, entries: Sequence[Entry]) -> str:
    for option, vocabulary in (("mode", Mode), ("dtype", Dtype), ("profile", Profile), ("phase", Phase)):
        if word in set(vocabulary):
            return f"{word!r} is no model but a {option}; name a model, and choose the {option} with its own option"
    names = {name: name for entry in entries for name in (entry.model_type, entry.model_class, entry.model_id) if name}
    for entry in entries:
        if entry.model_id:
            names.setdefault(entry.model_id.rpartition("/")[2], entry.model_id)
    tail = word.rsplit("/", FIELDS_AFTER_ENTRY)
    if len(tail) > FIELDS_AFTER_ENTRY and any(entry.id == tail[0] for entry in entries):
        vocabularies = (("phase", Phase), ("mode", Mode), ("dtype", Dtype), ("profile", Profile))
        for given, (kind, vocabulary) in zip(tail[1:], vocabularies, strict=True):
            if given not in set(vocabulary):
                return f"{unknown(kind, given, list(vocabulary))} in {word!r}"
    if close := _close(word, names):
        return f"no model matches {word!r}; did you mean {' or '.join(close)}?"
    examples = ", ".join(dict.fromkeys(entry.model_type for entry in entries[:3]))
    return (
        f"no model matches {word!r}; give a model type, class, Hub id, case id or glob"
        f" ({len(entries)} models here, such as {examples or 'none'}; `zoo list` shows them)"
    )


def _close(word: str, names: dict[str, str]) -> list[str]:
    """What the close ones among the keys of `names` stand for, closest first, at most three."""
    folded: dict[str, list[str]] = {}
    for name, meaning in names.items():
        folded.setdefault(name.lower(), []).append(meaning)
    close = difflib.get_close_matches(word.lower(), folded, n=3)
    return list(dict.fromkeys(meaning for name in close for meaning in folded[name]))[:3]


def _is_glob(word: str) -> bool:
    return any(character in word for character in _GLOB_CHARACTERS)


def _require_phase(entry: Entry, phase: Phase, word: str) -> None:
    if phase not in entry.phases:
        raise PlanError(f"{word!r}: {entry.model_class} has no phase {phase} (it has: {', '.join(entry.phases)})")


def _names_entry(word: str, entry: Entry) -> bool:
    names = (entry.model_type, entry.model_class, entry.model_id, entry.id)
    return word in names or (_is_glob(word) and any(fnmatchcase(name, word) for name in names))


def _names_some_case(word: str, entry: Entry) -> bool:
    if not _is_glob(word):
        return _coordinates(word, entry) is not None
    grid = product(Phase, Mode, Dtype, Profile)
    return any(fnmatchcase(Case(entry, *coordinates).id, word) for coordinates in grid)


def _coordinates(word: str, entry: Entry) -> tuple[Phase, Mode, Dtype, Profile] | None:
    """What `word` adds to the entry's id where it is the full id of one of the entry's cases."""
    prefix = f"{entry.id}/"
    if not word.startswith(prefix):
        return None
    fields = word.removeprefix(prefix).split("/")
    if len(fields) != FIELDS_AFTER_ENTRY:
        return None
    phase, mode, dtype, profile = fields
    try:
        return Phase(phase), Mode(mode), Dtype(dtype), Profile(profile)
    except ValueError:
        return None
