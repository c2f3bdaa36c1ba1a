"""The versions that a search is asked to tell apart: of a range, of a list, or of wheels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

_RANGE = "torch_tpu==0.1.1..0.2.0"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_LISTED_AT_MOST = 12


class BadVersions(ValueError):
    """What was asked for is no two versions of one distribution; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version of a distribution; `wheel` is the file that it is installed from, None where pip finds it."""

    name: str
    version: str
    wheel: Path | None = None

    @property
    def requirement(self) -> str:
        """What pip is told to install."""
        return str(self.wheel) if self.wheel else f"{self.name}=={self.version}"

    def __str__(self) -> str:
        return f"{self.name} {self.version}" + (f" of {self.wheel.name}" if self.wheel else "")


def asked(words: Sequence[str], released: Callable[[str, bool], list[str]]) -> list[Candidate]:
    """The candidates that `words` name, each once, the oldest first; wheels of one version in the order given.

    A word is a range of versions with both its ends (`torch_tpu==0.1.1..0.2.0`), some versions (`torch==2.12,2.13`), a
    wheel's path or a glob of such. `released` says which versions of a distribution there are, with pre-releases or
    without; a range has these where an end of it is one. Raises BadVersions, and what `released` raises.
    """
    found: list[Candidate] = []
    for word in words:
        found += _wheels(word) if word.endswith(".whl") else _versions(word, released)
    unique = list(dict.fromkeys(found))
    names = list(dict.fromkeys(canonicalize_name(one.name) for one in unique))
    if len(names) > 1:
        raise BadVersions(f"the versions of one distribution are tried at a time, not of {' and '.join(names)}")
    if len(unique) < 2:
        raise BadVersions(f"{' '.join(words)} is only {unique[0]}: give two versions to tell apart, such as {_RANGE}")
    return sorted(unique, key=lambda one: Version(one.version))


def _wheels(word: str) -> Iterator[Candidate]:
    files = [word] if Path(word).is_file() else sorted(glob(word))
    if not files:
        raise BadVersions(f"{word}: there is no such wheel")
    for file in files:
        try:
            name, version, _, _ = parse_wheel_filename(Path(file).name)
        except InvalidWheelFilename as error:
            raise BadVersions(f"{file} is not called like a wheel: name-version-python-abi-platform.whl") from error
        yield Candidate(name, str(version), Path(file).absolute())


def _versions(word: str, released: Callable[[str, bool], list[str]]) -> Iterator[Candidate]:
    name, equals, rest = word.partition("==")
    if not equals or not _NAME.fullmatch(name):
        raise BadVersions(f"{word!r} names no versions: give a range such as {_RANGE}, or wheels")
    first, dots, last = rest.partition("..")
    try:
        ends = [Version(text) for text in ((first, last) if dots else rest.split(","))]
    except InvalidVersion as error:
        raise BadVersions(f"{word!r}: {error}; write it like {_RANGE}") from error
    if not dots:
        yield from (Candidate(name, str(version)) for version in ends)
        return
    low, high = ends
    if low > high:
        raise BadVersions(f"{word!r} ends before it begins: write it as {name}=={high}..{low}")
    there = [Version(text) for text in released(name, low.is_prerelease or high.is_prerelease)]
    for end in ends:
        if not any(_is(end, version) for version in there):
            raise BadVersions(f"pip finds no {name} {end} for this Python; it finds {_some(there)}")
    yield from (Candidate(name, str(one)) for one in there if low <= one <= high or _is(high, one))


def _is(asked: Version, there: Version) -> bool:
    """Whether a version is the one asked for, whatever build of it that is where no build was asked for."""
    return there == asked or (asked.local is None and there.public == asked.public)


def _some(versions: Sequence[Version]) -> str:
    shown = ", ".join(map(str, versions[:_LISTED_AT_MOST]))
    return shown + (f" and {len(versions) - _LISTED_AT_MOST} more" if len(versions) > _LISTED_AT_MOST else "")
