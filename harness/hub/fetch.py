"""Fetches a model's config or weights at one revision, checks each file against what the Hub says of it, and keeps
what became of it in the index. Whatever the Hub does ends in a verdict about the environment, never about a model."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import disable_progress_bars, logging
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from harness.cases import Entry, Verdict, Weights
from harness.files import write_whole
from harness.hub import index, space, unpickled
from harness.hub.choice import chosen, is_code, is_pickle
from harness.hub.client import Patience, Visit, patient, visiting
from harness.hub.index import Fetched, Unfetched

WORKERS = 8
"""Models fetched side by side: latency counts for small files, and more would only meet the Hub's limits sooner."""
CONFIG_BYTES = 16 * 2**20
"""No config is longer."""
CODE_BYTES = 4 * 2**20
"""Most code that is taken of a model; nobody reads more."""
TRIES_OF_A_FILE = 2
"""A file with wrong content is fetched once more: what lies between here and the Hub may have spoilt it."""

_SHA256, _GIT_SHA = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


class _Spoilt(Unfetched):
    """A file arrived with wrong content, and was removed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where from and where to. `endpoint` None is the library's own, $HF_ENDPOINT or the Hub.

    `quota` is in bytes and holds for checkpoints. `refresh` asks for the newest revision again where the list pins
    none; else what was fetched once stays. `allow_pickle` takes weights that can carry code where there are no others.
    """

    cache: Path
    patience: Patience = field(default_factory=Patience)
    endpoint: str | None = None
    quota: int = space.QUOTA
    allow_pickle: bool = False
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How fetching for an entry ended: what is known now, and what it took."""

    entry: Entry
    fetched: Fetched
    requests: int
    received: int


def fetch_all(entries: Iterable[Entry], settings: Settings, workers: int = WORKERS) -> Iterator[Ended]:
    """Fetch for every entry what its weights need, each as it ends.

    Entries of one model and kind share what is fetched. Whoever stops early, by closing the iterator or by an
    exception, can go on another time. Closing waits until nothing runs any more; KeyboardInterrupt does not, since a
    request may be silent for as long as `Patience.answer`. Raises OSError where the cache cannot be written.
    """
    alike: dict[tuple[Weights, str, str], list[Entry]] = {}
    for entry in entries:
        alike.setdefault((entry.weights, entry.model_id, entry.revision), []).append(entry)
    disable_progress_bars()
    logging.set_verbosity_error()  # what it says of its own retries is not how they end
    stopped, pool, waits = threading.Event(), ThreadPoolExecutor(workers), True
    with patient(settings.patience):
        futures = {pool.submit(_one, entries, settings, stopped): entries for entries in alike.values()}
        try:
            for future in as_completed(futures):
                for place, entry in enumerate(futures[future]):
                    ended = future.result()
                    yield dataclasses.replace(ended, entry=entry, **({"requests": 0, "received": 0} if place else {}))
        except KeyboardInterrupt:
            waits = False
            raise
        finally:
            stopped.set()
            pool.shutdown(waits, cancel_futures=True)


def _one(entries: list[Entry], settings: Settings, stopped: threading.Event) -> Ended:
    """Fetch what entries share, with its code where it is at the commit that one of them trusts."""
    entry, trusted = entries[0], {entry.trusted for entry in entries}
    kind, cache = entry.weights, settings.cache
    before = index.read(cache, kind, entry.model_id, entry.revision)
    known = Fetched(kind, entry.model_id, entry.revision)
    if before is not None:
        known = dataclasses.replace(before, verdict="", message="")
    if settings.refresh and not entry.revision:
        known = dataclasses.replace(known, revision="", config="")
    with visiting(settings.patience, stopped) as visit:
        try:
            with space.alone(cache, entry.model_id):
                job = _Checkpoint if kind is Weights.HUB else _Config
                known = job(settings, visit, known, trusted).fetched()
        except Unfetched as why:
            # What is there already is still there, and counts against the quota.
            left = index.read(cache, kind, entry.model_id, entry.revision) or known
            known = dataclasses.replace(left, verdict=why.verdict, message=str(why))
        if visit.moved_to:
            known = dataclasses.replace(known, moved_to=visit.moved_to)
        index.write(cache, known)
    return Ended(entry, known, visit.requests, visit.received)


class _Config:
    """The config alone: two requests for a model that is new, none for one that is there.

    It is copied out of the library's cache to where runs look for it: others may empty that one.
    """

    def __init__(self, settings: Settings, visit: Visit, known: Fetched, trusted: set[str]) -> None:
        self.settings, self.visit, self.known, self.trusted = settings, visit, known, trusted
        self.revision = known.asked or known.revision

    def fetched(self) -> Fetched:
        """What is known afterwards. Raises Unfetched, and OSError."""
        if self.complete:
            return self.known
        self.visit.most = CONFIG_BYTES * TRIES_OF_A_FILE
        path = self.file("config.json", self.revision or constants.DEFAULT_REVISION)
        copy = index.config_path(self.settings.cache, self.known.model_id, self.known.asked)
        write_whole(copy, path.read_bytes())
        return dataclasses.replace(self.known, revision=path.parent.name, config=str(copy))

    @property
    def complete(self) -> bool:
        """Whether everything is there, and nothing newer is asked for."""
        return self.known.complete and bool(self.known.revision)

    def file(self, name: str, revision: str, size: int | None = None, sha256: str | None = None) -> Path:
        """A file of the model, whole and right. Raises Unfetched."""
        tries = Retrying(stop=stop_after_attempt(TRIES_OF_A_FILE), retry=retry_if_exception_type(_Spoilt), reraise=True)
        return tries(self._file, name, revision, size, sha256)

    def _file(self, name: str, revision: str, size: int | None, sha256: str | None) -> Path:
        with _in_words(name):
            path = Path(
                hf_hub_download(
                    self.known.model_id,
                    name,
                    revision=revision,
                    cache_dir=index.files(self.settings.cache),
                    endpoint=self.settings.endpoint,
                )
            )
            wrong = _wrong(path, size, sha256)
        if wrong is not None:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise wrong
        return path


class _Checkpoint(_Config):
    """The config, the weights and what goes with them."""

    def fetched(self) -> Fetched:
        """What is known afterwards. Raises Unfetched, and OSError."""
        known = self.known
        if self.complete and known.weights and self._code_is_there:
            return known
        info = self._info()
        files = {file.rfilename: file for file in info.siblings or ()}
        names = chosen(list(files), self.settings.allow_pickle, code=info.sha in self.trusted)
        sizes = {name: files[name].size for name in names}
        if unsized := [name for name, size in sizes.items() if size is None]:
            raise Unfetched(Verdict.HUB_ERROR, f"{known.model_id}: the Hub does not say how large {unsized[0]} is")
        if (code := sum(sizes[name] for name in names if is_code(name))) > CODE_BYTES:
            more = f"{known.model_id}: its code has {code:,} bytes, more than the {CODE_BYTES:,} that are taken"
            raise Unfetched(Verdict.CODE_NOT_TRUSTED, more)
        large = max(sizes, key=lambda name: sizes[name])
        if sizes[large] > constants.MAX_HTTP_DOWNLOAD_SIZE:
            raise Unfetched(Verdict.HUB_ERROR, f"{large}: {sizes[large]:,} bytes, more than the Hub gives over HTTP")
        reserved = dataclasses.replace(
            known,
            revision=info.sha,
            moved_to=info.id if info.id != known.model_id else known.moved_to,
            config="",
            weights=tuple(name for name in names if name != "config.json"),
            bytes=sum(sizes.values()) + sum(sizes[name] for name in names if is_pickle(name)),
            code="",
        )
        self._reserve(reserved)
        self.visit.allowed += 3 * len(names)
        self.visit.most = reserved.bytes * TRIES_OF_A_FILE
        paths = {}
        for name in names:
            sha256 = files[name].lfs.sha256 if files[name].lfs else None
            paths[name] = self.file(name, info.sha, sizes[name], sha256)
        there = dataclasses.replace(reserved, config=str(paths["config.json"]))
        if info.sha in self.trusted:
            there = dataclasses.replace(there, code=there.digest)
        return self._unpickled(there, paths) if any(map(is_pickle, names)) else there

    @property
    def _code_is_there(self) -> bool:
        """Whether its code is as it was fetched, or not to be run."""
        return self.known.revision not in self.trusted or self.known.code == self.known.digest

    def _reserve(self, wanted: Fetched) -> None:
        unfinished = "it was not fetched to the end; `zoo prefetch` goes on"
        marked = dataclasses.replace(wanted, verdict=Verdict.CHECKPOINT_MISSING, message=unfinished)
        space.reserve(self.settings.cache, marked, self.settings.quota)

    def _unpickled(self, fetched: Fetched, paths: dict[str, Path]) -> Fetched:
        """With safetensors beside the pickles, which may be larger than these where tensors share their memory."""
        made = unpickled.beside(Path(fetched.config).parent, [name for name in paths if is_pickle(name)])
        size = sum(path.stat().st_size for path in (*paths.values(), made))
        fetched = dataclasses.replace(fetched, weights=(*fetched.weights, made.name), bytes=size)
        try:
            self._reserve(fetched)
        except Unfetched:
            made.unlink()
            raise
        return fetched

    def _info(self) -> ModelInfo:
        with _in_words(self.known.model_id):
            try:
                api = HfApi(endpoint=self.settings.endpoint)
                info = api.model_info(self.known.model_id, revision=self.revision or None, files_metadata=True)
            except (KeyError, TypeError, AttributeError) as error:
                said = f"{self.known.model_id}: the Hub's answer is not that of a Hub: {type(error).__name__}: {error}"
                raise Unfetched(Verdict.HUB_ERROR, said) from error
        if not info.sha or not _GIT_SHA.fullmatch(info.sha):
            raise Unfetched(Verdict.HUB_ERROR, f"{self.known.model_id}: the Hub does not say which commit it is")
        return info


def _wrong(path: Path, size: int | None, sha256: str | None) -> _Spoilt | None:
    """What is wrong with a file, None where nothing is; the library names it by the hash that the Hub says it has."""
    found, name, said = path.stat().st_size, path.name, path.resolve().name
    if size is not None and found != size:
        return _Spoilt(Verdict.TRUNCATED, f"{name}: {found:,} bytes, where the Hub says {size:,}")
    expected = sha256 or (said if _SHA256.fullmatch(said) else None)
    with path.open("rb") as file:
        if expected is not None:
            digest = hashlib.file_digest(file, "sha256")
        elif _GIT_SHA.fullmatch(said):
            expected, digest = said, hashlib.sha1(f"blob {found}\0".encode(), usedforsecurity=False)
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            return None  # a mirror that names its files by something else than their content
    if digest.hexdigest() != expected:
        return _Spoilt(Verdict.WRONG_HASH, f"{name}: its hash is {digest.hexdigest()}, the Hub says {expected}")
    return None


class _in_words:
    """Turns what the library raises inside into Unfetched; an error of this machine's own disk stays an OSError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case Unfetched():
                return
            case HFValidationError():
                raise Unfetched(Verdict.GONE, f"{self._what}: no id that a Hub could have: {error}") from error
            case httpx2.HTTPError():
                raise Unfetched(Verdict.HUB_ERROR, f"{self._what}: {error}") from error
            case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Unfetched(Verdict.DISK_FULL, f"{self._what}: {error.strerror}") from error
            case OSError() if error.errno is None and "Consistency check failed" in str(error):
                raise _Spoilt(Verdict.TRUNCATED, f"{self._what}: {str(error).partition('.')[0]}") from error
            case OSError() if error.errno is None:
                raise Unfetched(Verdict.HUB_ERROR, f"{self._what}: {error}") from error
            case ValueError():  # JSON among them
                raise Unfetched(Verdict.HUB_ERROR, f"{self._what}: the Hub's answer is not that of a Hub") from error
