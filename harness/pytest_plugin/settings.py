"""What a run was asked for, from its options to values; shared by the pytest plugin and the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cases import Case, Dtype, Entry, Phase, Profile, Shipped
from harness.plan import PlanError, attempted, from_ids, lacking, not_attempted, plan, select, words_of

if TYPE_CHECKING:
    from harness.plan.document import PlanDocument
    from harness.targets.base import Target

DEFAULT_PHASES = tuple(Phase)
DEFAULT_DTYPES = (Dtype.FLOAT32,)
DEFAULT_PROFILES = (Profile.PADDED,)


@dataclass(frozen=True)
class Choice:
    """The cases asked for, in the user's words; `coordinates` turns them into values. None means the default."""

    phases: Sequence[str] | None = None
    modes: Sequence[str] | None = None
    dtypes: Sequence[str] | None = None
    profiles: Sequence[str] | None = None
    tier: str | None = None
    words: Sequence[str] = ()
    plan_file: Path | None = None

    def cases(self, entries: Sequence[Entry], target: Target) -> tuple[Case, ...]:
        """The cases of `entries` chosen for `target`. Raises PlanError for words that name nothing."""
        if self.plan_file is not None:
            try:
                ids = self.plan_file.read_text(encoding="utf-8").split("\n")
            except OSError as error:
                raise PlanError(f"cannot read the plan {self.plan_file}: {error.strerror}") from error
            return from_ids([line for line in ids if line], entries)
        modes = words_of("mode", self.modes or (), target.modes)
        phases = self._phases() or DEFAULT_PHASES
        dtypes = words_of("dtype", self.dtypes, [*Dtype, *Shipped]) if self.dtypes else DEFAULT_DTYPES
        profiles = words_of("profile", self.profiles, list(Profile)) if self.profiles else DEFAULT_PROFILES
        chosen = attempted(self._entries(entries), self.words)
        lacking(chosen, self._phases())
        return plan(chosen, phases, modes, dtypes, profiles, self.words)

    def lacking(self, entries: Sequence[Entry]) -> dict[Phase, int]:
        """How many of the chosen entries lack a phase that was asked for. Raises PlanError where all of them do."""
        return lacking(attempted(self._entries(entries), self.words), self._phases())

    def not_attempted(self, entries: Sequence[Entry]) -> dict[str, int]:
        """How many of the chosen entries are of each library whose models nothing here runs."""
        return not_attempted(self._entries(entries))

    def _entries(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        return select(entries, tier=self.tier, words=self.words)

    def _phases(self) -> tuple[Phase, ...]:
        return words_of("phase", self.phases, list(Phase)) if self.phases else ()


def read_plan(path: Path) -> tuple[str, PlanDocument]:
    """The plan in a file, as text and as what it says. Raises PlanError."""
    from harness.plan.document import loads

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot read the plan {path}: {getattr(error, 'strerror', 'not UTF-8 text')}") from error
    return text, loads(text, str(path))


def default_cache() -> Path:
    """`$ZOO_CACHE`, or the user's own cache folder for this program."""
    if named := os.environ.get("ZOO_CACHE"):
        return Path(named).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("zoo", appauthor=False)
