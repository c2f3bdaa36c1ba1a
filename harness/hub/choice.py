"""Which files of a repository make up its checkpoint, by their names: none that can carry code, unless asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.cases import Verdict
from harness.hub.index import CODE, Unfetched

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_PICKLES = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
_COMPANIONS = re.compile(r"[\w.-]+\.(json|txt|model|jinja)")
_CODE = re.compile(rf"[\w.-]+{re.escape(CODE)}")


def is_weights(name: str) -> bool:
    """Whether a file holds weights and can carry no code."""
    return bool(_WEIGHTS.fullmatch(name))


def is_pickle(name: str) -> bool:
    """Whether a file holds weights that were pickled."""
    return bool(_PICKLES.fullmatch(name))


def is_companion(name: str) -> bool:
    """Whether a file is a config, an index of shards, or of a tokenizer or processor; none of these can carry code."""
    return bool(_COMPANIONS.fullmatch(name))


def is_code(name: str) -> bool:
    """Whether a file is code that the library may import for a model, which it does from beside the config alone."""
    return bool(_CODE.fullmatch(name))


def chosen(names: Sequence[str], allow_pickle: bool, code: bool = False) -> list[str]:
    """The files of a checkpoint, the config first, with its own `code` where that is trusted. Raises Unfetched."""
    if "config.json" not in names:
        raise Unfetched(Verdict.GONE, "the repository has no config.json")
    weights = [name for name in names if is_weights(name)]
    pickles = [name for name in names if is_pickle(name)]
    if not weights and not (allow_pickle and pickles):
        others = f"; it has {pickles[0]}, which can carry code (`--allow-pickle` takes it)" if pickles else ""
        raise Unfetched(Verdict.NO_SAFETENSORS, f"the repository has no model.safetensors{others}")
    companions = [name for name in names if is_companion(name) and name != "config.json"]
    unused = "pytorch_model.bin.index.json" if weights else "model.safetensors.index.json"
    own = [name for name in names if code and is_code(name)]
    return ["config.json", *own, *(name for name in companions if name != unused), *(weights or pickles)]
