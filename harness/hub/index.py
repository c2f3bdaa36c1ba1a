"""What became of each model that was asked of the Hub: one small file each, so that any number may write at once."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from urllib.parse import quote

from harness.cases import Entry, Verdict, Weights
from harness.files import write_whole
from harness.redaction import redacted

CODE = ".py"
"""How the names of files of code end."""


class Unfetched(RuntimeError):
    """Something cannot be had from the Hub: the verdict, and one line of why."""

    def __init__(self, verdict: Verdict, message: str) -> None:
        super().__init__(redacted(" ".join(message.split()))[:500])
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Fetched:
    """What is known of one model at one revision, for entries of one `kind` of weights: config or hub.

    `asked` is the revision of the list, empty for the newest, `revision` the commit that it is, and `moved_to` the id
    that the model has on the Hub today where that is another. `config` is the path of its config.json, `weights` the
    names of the files beside that which make up a checkpoint, and `bytes` what all of them take of the quota. `code` is
    the `digest` of those that are code, empty where none was asked for. `verdict` is why they are not there, in
    `message`; empty where they are.
    """

    kind: Weights
    model_id: str
    asked: str
    revision: str = ""
    moved_to: str = ""
    config: str = ""
    weights: tuple[str, ...] = ()
    bytes: int = 0
    code: str = ""
    verdict: str = ""
    message: str = ""

    @property
    def failed(self) -> Verdict | None:
        """Why it is not there, None where it is."""
        return Verdict(self.verdict) if self.verdict else None

    @property
    def complete(self) -> bool:
        """Whether every file is there."""
        names = (Path(self.config).name, *self.weights)
        return bool(self.config) and all((Path(self.config).parent / name).is_file() for name in names)

    @property
    def digest(self) -> str:
        """sha256 hex over the names and contents of its files of code. Raises OSError."""
        found = hashlib.sha256()
        for name in sorted(name for name in self.weights if name.endswith(CODE)):
            content = (Path(self.config).parent / name).read_bytes()
            found.update(f"{name}\0{len(content)}\0".encode() + content)
        return found.hexdigest()


def root(cache: Path) -> Path:
    """Where everything of the Hub is kept in the harness's cache but checkpoints that lie in $HF_HUB_CACHE."""
    return cache / "hub"


def shared() -> str:
    """$HF_HUB_CACHE: the folder of files that others use too; empty where there is none."""
    return os.environ.get("HF_HUB_CACHE", "")


def files(cache: Path) -> Path:
    """The folder with the files, laid out as the library's own cache: $HF_HUB_CACHE, or a part of the cache."""
    return Path(shared()).expanduser().absolute() if shared() else root(cache) / "files"


def config_path(cache: Path, model_id: str, asked: str) -> Path:
    """Where a model's own config is kept once it was fetched, at the revision of the list."""
    return root(cache) / "configs" / _named(model_id, asked)


def place(cache: Path, kind: Weights, model_id: str, asked: str) -> Path:
    """The file that says what is known of a model."""
    return root(cache) / "index" / kind / _named(model_id, asked)


def read(cache: Path, kind: Weights, model_id: str, asked: str) -> Fetched | None:
    """What is known of a model, None where it was never asked for or its record cannot be read."""
    return _read(place(cache, kind, model_id, asked))


def write(cache: Path, fetched: Fetched) -> None:
    """Keep what is known of a model, with paths in the cache relative to it: it may be moved. Raises OSError."""
    path = place(cache, fetched.kind, fetched.model_id, fetched.asked)
    data = asdict(fetched)
    if Path(fetched.config).is_relative_to(root(cache)):
        data["config"] = str(Path(fetched.config).relative_to(root(cache)))
    write_whole(path, json.dumps(data).encode())


def superseded(cache: Path, fetched: Fetched) -> None:
    """Before `fetched` is written: keep the record of the files it has at another revision, under that revision."""
    path = place(cache, fetched.kind, fetched.model_id, fetched.asked)
    before = _read(path)
    if before is None or not before.bytes or before.revision == fetched.revision:
        return
    used = path.stat().st_mtime_ns
    write(cache, replace(before, asked=before.revision))
    os.utime(place(cache, before.kind, before.model_id, before.revision), ns=(used, used))


def touch(cache: Path, fetched: Fetched) -> None:
    """Remember that it was used just now."""
    os.utime(place(cache, fetched.kind, fetched.model_id, fetched.asked))


def checkpoints(cache: Path) -> list[Fetched]:
    """What is known of all checkpoints, that which was used longest ago first."""
    found = []
    for path in (root(cache) / "index" / Weights.HUB).glob("*.json"):
        if (fetched := _read(path)) is not None:
            found.append((path.stat().st_mtime_ns, path.name, fetched))
    return [fetched for _, _, fetched in sorted(found, key=lambda one: one[:2])]


def wanted(entry: Entry) -> bool:
    """Whether an entry needs something of the Hub: its config, or a checkpoint that no package or folder has."""
    if entry.weights is Weights.HUB:
        return "/" in entry.model_id and not entry.package and not entry.config
    return entry.weights is Weights.CONFIG


def known(cache: Path, entry: Entry) -> Fetched:
    """What was fetched for an entry that wants something; CHECKPOINT_MISSING where it is not there."""
    fetched = read(cache, entry.weights, entry.model_id, entry.revision)
    if fetched is None:
        fetched = Fetched(entry.weights, entry.model_id, entry.revision)
        return replace(fetched, verdict=Verdict.CHECKPOINT_MISSING, message="nothing was fetched of it yet")
    if fetched.verdict:
        return fetched
    if not fetched.complete:
        return replace(fetched, verdict=Verdict.CHECKPOINT_MISSING, message="what was fetched of it is no longer there")
    if replace(entry, revision=fetched.revision).trusts_its_code:
        if not fetched.code:
            return replace(fetched, verdict=Verdict.CHECKPOINT_MISSING, message="its code was not fetched yet")
        if fetched.digest != fetched.code:
            return replace(fetched, verdict=Verdict.WRONG_HASH, message="its code is no longer what was fetched")
    return fetched


def _named(model_id: str, asked: str) -> str:
    return f"{quote(model_id, safe='')}@{quote(asked, safe='') or 'newest'}.json"


def _read(path: Path) -> Fetched | None:
    names = {field.name for field in fields(Fetched)}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        typed = {"kind": Weights(data["kind"]), "weights": tuple(data["weights"])}
        typed["config"] = str(path.parents[2] / data["config"]) if data["config"] else ""
        fetched = Fetched(**{name: data[name] for name in names & data.keys()} | typed)
        _ = fetched.failed
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # it is fetched again, which costs a request or none
    return fetched
