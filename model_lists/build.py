"""Chooses the models of `hub.csv` from facts about public Hub models: a maintainer's tool, not used while running.

`python -m model_lists.build FACTS REGISTERED` writes `hub.csv` and `aliases.csv`. FACTS is a folder with
`hub_models.csv` (a model per row: `model_id`, `library`, `model_type`, `architecture`, `task`, `params`, `gated`,
`custom_code`, `revision`, and `source`, the sources that name the id joined with `+`) and `architectures.csv` (`kind`,
`name`, `representative_id`). REGISTERED is what `python -m harness.models.registered REGISTERED` wrote. The same files
make the same bytes.

The rule:

1. A model may be chosen if transformers registers its type and a class for it (a sentence-transformers model by the
   body it is made of), if it is a timm model (as `timm_wrapper`), or if diffusers exports its class. Not if it is
   known to need code of its own repository while others of its type do not, under an old id whose new one is known
   too, or in the smoke list.
2. Within a type, models named by `CORE_SOURCES` or more sources come first, the safe core. Then those: not gated; not
   known from `OLD_LISTING` alone; of the owner whose checkpoint stands for the type; no made-up test model; with a
   known revision; with a known size; named by more sources; by name.
3. They are dealt into groups of equal class and size (`SIZES`). The groups take turns, the one with the best model
   first, until the type has `PER_TYPE`. Those known from `OLD_LISTING` alone only fill a type up to `PER_TYPE_OLD`.
4. Of a type's models that are not known to be gated or to need code of their own, the first `PER_NIGHT` of its core
   that are not known to be larger than `NIGHT_PARAMS` make the tier nightly, the first `PER_WEEK` weekly. All others
   are full.
5. The class is the one that the model's config names where it is registered for the type; else the first registered
   for the type that does the model's task; else the one that stands for the type.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cases import Entry
from model_lists import ALIASES, DERIVED_TIERS, UNKNOWN, load_list, write_list

CORE_SOURCES = 2
OLD_LISTING = "hub-listing-2022"
"""A listing of the whole Hub of February 2022: much of it is gone, renamed or gated since, and small fine-tunes."""
PER_TYPE, PER_TYPE_OLD = 40, 10
PER_NIGHT, PER_WEEK = 2, 8
NIGHT_PARAMS = 10_000_000_000
SIZES = (100_000_000, 1_000_000_000, 10_000_000_000, 70_000_000_000)
"""Parameters at which the next size begins; unknown is a size of its own."""
LEGACY_OWNERS = frozenset(
    (
        "albert",
        "almanach",
        "distilbert",
        "FacebookAI",
        "google-bert",
        "google-t5",
        "openai-community",
        "transfo-xl",
        "xlnet",
    )
)
"""Owners that were made for ids that had none: what a listing from before names under them is the id without owner."""
RENAMED_OWNERS = {"CohereForAI": "CohereLabs", "sberbank-ai": "ai-forever", "THUDM": "zai-org"}
"""Owners that took another name. Only ids that the facts have under both are taken for one model."""

_MADE_UP = ("tiny-random", "tiny_random", "dummy", "-testing/", "tiny-")
_ENDINGS = {
    "automatic-speech-recognition": ("ForCTC", "ForConditionalGeneration", "ForSpeechSeq2Seq"),
    "fill-mask": ("ForMaskedLM",),
    "image-classification": ("ForImageClassification",),
    "image-text-to-text": ("ForConditionalGeneration",),
    "object-detection": ("ForObjectDetection",),
    "question-answering": ("ForQuestionAnswering",),
    "summarization": ("ForConditionalGeneration",),
    "text-classification": ("ForSequenceClassification",),
    "text-generation": ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
    "text2text-generation": ("ForConditionalGeneration",),
    "token-classification": ("ForTokenClassification",),
    "translation": ("ForConditionalGeneration", "MTModel"),
}
"""How the classes end that do what a tag of the Hub says."""
_ANSWERS = {"true": "yes", "false": "no"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may be chosen, its sources and whether its owner is the one whose checkpoint stands for its type."""

    entry: Entry
    sources: tuple[str, ...]
    by_owner: bool

    @property
    def core(self) -> bool:
        """Do enough sources name it?"""
        return len(self.sources) >= CORE_SOURCES

    @property
    def old(self) -> bool:
        """Is it known from the old listing alone?"""
        return self.sources == (OLD_LISTING,)

    @property
    def rank(self) -> tuple[object, ...]:
        """Smaller is better; point 2 of the rule."""
        entry, name = self.entry, self.entry.model_id.lower()
        return (
            not self.core,
            entry.gated == "yes",
            self.old,
            not self.by_owner,
            any(word in name for word in _MADE_UP),
            not entry.revision,
            entry.params is None,
            -len(self.sources),
            name,
        )

    @property
    def group(self) -> tuple[str, int]:
        """Its class and size, the size -1 where unknown."""
        params = self.entry.params
        return self.entry.model_class, -1 if params is None else sum(params >= size for size in SIZES)


def chosen(
    facts: Iterable[Mapping[str, str]],
    architectures: Iterable[Mapping[str, str]],
    registered: Iterable[Entry],
    smoke: Iterable[Entry],
) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """The models of the list, in its order, and the new id of each old one, of these and of the smoke list.

    `facts` and `architectures` are rows of FACTS, `registered` the entries of REGISTERED.
    """
    facts = list(facts)
    renamed = _renamed(facts)
    taken = {entry.model_id.lower() for entry in smoke} | {old.lower() for old in renamed}
    of_type: dict[str, list[Candidate]] = {}
    for one in _candidates(facts, architectures, registered):
        if one.entry.model_id.lower() not in taken:
            of_type.setdefault(one.entry.model_type, []).append(one)
    entries: list[Entry] = []
    for _, ones in sorted(of_type.items()):
        plain = [one for one in ones if one.entry.custom_code != "yes"]
        entries += _in_tiers(list(_spread(plain or ones, PER_TYPE)))
    known = {entry.model_id for entry in (*smoke, *entries)}
    return tuple(entries), {old: new for old, new in sorted(renamed.items()) if new in known}


def _renamed(facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """New ids by old ones."""
    ids = {row["model_id"]: row["source"].split("+") for row in facts}
    found = {}
    for model_id, sources in ids.items():
        owner, _, name = model_id.partition("/")
        if owner in LEGACY_OWNERS and OLD_LISTING in sources:
            found[name] = model_id
        elif owner in RENAMED_OWNERS and (new := f"{RENAMED_OWNERS[owner]}/{name}") in ids:
            found[model_id] = new
    return found


def _candidates(
    facts: Iterable[Mapping[str, str]], architectures: Iterable[Mapping[str, str]], registered: Iterable[Entry]
) -> Iterator[Candidate]:
    classes: dict[str, list[Entry]] = {}
    for entry in registered:
        classes.setdefault(entry.model_type, []).append(entry)
    owners = {(entry.model_type, _owner(entry.model_id)) for entry in registered if "/" in entry.model_id}
    pipelines = set()
    for row in architectures:
        if row["kind"] != "transformers":
            pipelines.add(row["name"])
        elif row["representative_id"]:
            owners.add((row["name"], _owner(row["representative_id"])))
    for row in facts:
        shape = _shape(row, classes, pipelines)
        if shape is None:
            continue
        entry = replace(
            shape,
            model_id=row["model_id"],
            revision=row["revision"],
            task=row["task"],
            params=int(row["params"]) if row["params"] else None,
            tier="full",
            gated=_ANSWERS.get(row["gated"], UNKNOWN),
            custom_code=_ANSWERS.get(row["custom_code"], UNKNOWN),
        )
        by_owner = (entry.model_type, _owner(entry.model_id)) in owners
        yield Candidate(entry, tuple(row["source"].split("+")), by_owner)


def _shape(row: Mapping[str, str], classes: Mapping[str, Sequence[Entry]], pipelines: set[str]) -> Entry | None:
    """An entry with the type, class, family and phases of a row's model; None where it cannot be chosen."""
    name = row["architecture"]
    if row["library"] == "diffusers":
        return Entry("", "", "diffusers", name, name, "diffusion", "", None, "full") if name in pipelines else None
    model_type = "timm_wrapper" if row["library"] == "timm" else row["model_type"]
    known = classes.get(model_type, ())
    if not known:
        return None
    endings = _ENDINGS.get(row["task"], ("\0",))
    fitting = [entry for ending in endings for entry in known if entry.model_class.endswith(ending)]
    stands_for_type = [entry for entry in known if entry.tier == DERIVED_TIERS[0]]
    named = [entry for entry in known if entry.model_class == name]
    entry = (*named, *fitting, *stands_for_type)[0]
    return replace(entry, library="timm") if row["library"] == "timm" else entry


def _spread(candidates: Sequence[Candidate], count: int) -> Iterator[Candidate]:
    """Up to `count` of a type's models, in the order of the choice; point 3 of the rule."""
    groups: dict[tuple[str, int], list[Candidate]] = {}
    for one in sorted(candidates, key=lambda one: one.rank):
        groups.setdefault(one.group, []).append(one)
    turns = [(place, one.rank, one) for group in groups.values() for place, one in enumerate(group)]
    # The core first, whatever its groups; of the rest the old ones last.
    turns.sort(key=lambda turn: (not turn[2].core, turn[2].old, turn[0], turn[1]))
    for number, (_, _, one) in enumerate(turns[:count]):
        if one.old and number >= PER_TYPE_OLD:
            return
        yield one


def _in_tiers(candidates: Sequence[Candidate]) -> list[Entry]:
    """The models of a type in the tiers of point 4, by tier and then by choice."""
    free = [one for one in candidates if "yes" not in (one.entry.gated, one.entry.custom_code)]
    small = [one for one in free if one.core and (one.entry.params or 0) <= NIGHT_PARAMS]
    nightly = small[:PER_NIGHT]
    weekly = [one for one in free[:PER_WEEK] if one not in nightly]
    rest = [one for one in candidates if one not in nightly and one not in weekly]
    tiers = (("nightly", nightly), ("weekly", weekly), ("full", rest))
    return [replace(one.entry, tier=tier) for tier, ones in tiers for one in ones]


def _owner(model_id: str) -> str:
    return model_id.partition("/")[0].lower()


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(facts: Path, registered: Path, hub: Path, aliases: Path) -> None:
    """Write both files. Raises OSError, KeyError for facts of other columns, and ListError."""
    entries, renamed = chosen(
        _rows(facts / "hub_models.csv"),
        _rows(facts / "architectures.csv"),
        load_list(registered),
        load_list("smoke"),
    )
    write_list(hub, entries)
    with aliases.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("old_id", "new_id"), *renamed.items()])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(__file__).parent / "hub.csv", ALIASES)
