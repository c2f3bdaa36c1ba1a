"""What became of each model that was asked of the Hub: one small file each, so that any number may write at once."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import quote

from harness.cases import Entry, Verdict, Weights
from harness.redaction import redacted


class Unfetched(RuntimeError):
    """Something cannot be had from the Hub: the verdict, and one line of why."""

    def __init__(self, verdict: Verdict, message: str) -> None:
        super().__init__(redacted(" ".join(message.split()))[:500])
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Fetched:
    """What is known of one model at one revision, for entries of one kind of weights.

    `asked` is the revision of the list, empty for the newest.

    `revision` is the commit it is, `moved_to` the id it has on the Hub today where that is another. `config` is the
    path of its config.json, `weights` the names of its checkpoint's files and `bytes` their size; empty and 0 where
    they were not fetched or have been evicted. `verdict` is why the last try failed, in `message`; empty where it
    did not.
    """

    kind: Weights
    model_id: str
    asked: str
    revision: str = ""
    moved_to: str = ""
    config: str = ""
    weights: tuple[str, ...] = ()
    bytes: int = 0
    verdict: str = ""
    message: str = ""

    @property
    def failed(self) -> Verdict | None:
        """The verdict of the last try, None where it succeeded."""
        return Verdict(self.verdict) if self.verdict else None


def root(cache: Path) -> Path:
    """Where everything of the Hub is kept in the harness's cache but the files themselves."""
    return cache / "hub"


def files(cache: Path) -> Path:
    """The folder with the files, laid out as the library's own cache: $HF_HUB_CACHE, or a part of the cache."""
    named = os.environ.get("HF_HUB_CACHE")
    return Path(named).expanduser().absolute() if named else root(cache) / "files"


def place(cache: Path, kind: Weights, model_id: str, asked: str) -> Path:
    """The file that says what is known of a model."""
    return root(cache) / "index" / kind / f"{quote(model_id, safe='')}@{quote(asked, safe='') or 'newest'}.json"


def read(cache: Path, kind: Weights, model_id: str, asked: str) -> Fetched | None:
    """What is known of a model, None where it was never asked for or its record cannot be read."""
    return _read(place(cache, kind, model_id, asked))


def write(cache: Path, fetched: Fetched) -> None:
    """Keep what is known of a model; readers see the old record or the new one. Raises OSError."""
    path = place(cache, fetched.kind, fetched.model_id, fetched.asked)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as draft:
        draft.write(json.dumps(asdict(fetched)))
    os.replace(draft.name, path)


def touch(cache: Path, fetched: Fetched) -> None:
    """Remember that it was used just now."""
    os.utime(place(cache, fetched.kind, fetched.model_id, fetched.asked))


def by_use(cache: Path, kind: Weights) -> list[Fetched]:
    """All of a kind, that which was used longest ago first."""
    found = []
    for path in (root(cache) / "index" / kind).glob("*.json"):
        if (fetched := _read(path)) is not None:
            found.append((path.stat().st_mtime_ns, path.name, fetched))
    return [fetched for _, _, fetched in sorted(found, key=lambda one: one[:2])]


def wanted(entry: Entry) -> bool:
    """Whether the Hub has anything for an entry: one that a package or the list itself does not bring."""
    return bool(entry.model_id) and "/" in entry.model_id and not entry.package and not entry.config


def known(cache: Path, entry: Entry) -> Fetched | None:
    """What was fetched for an entry; None where nothing was, or nothing is of use to it."""
    if not wanted(entry):
        return None
    fetched = read(cache, entry.weights, entry.model_id, entry.revision)
    if fetched is None or fetched.verdict:
        return fetched
    present = fetched.config and Path(fetched.config).is_file()
    return fetched if present and (fetched.weights or entry.weights is not Weights.HUB) else None


def _read(path: Path) -> Fetched | None:
    names = {field.name for field in fields(Fetched)}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        typed = {"kind": Weights(data["kind"]), "weights": tuple(data["weights"])}
        fetched = Fetched(**{name: data[name] for name in names & data.keys()} | typed)
        _ = fetched.failed
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # it is fetched again, which costs a request or none
    return fetched
