"""Recipes: what the general rules cannot know about one architecture, as data.

`recipes/<model_type>.toml` may hold these tables, all optional; unknown keys are errors:

    reason = "why the rules are not enough"      # required
    [config]     facts of the architecture, set before reduction (dotted keys reach sub-configs)
    [reduced]    values set after reduction, for sizes that the rules get wrong
    [inputs]     numbers that the input makers need (see INPUT_KEYS)
    [generate]   what `generate` is asked for beside tokens, as keyword arguments that are true, false or a text;
                 and `choosers`, names of modules that choose otherwise than token by token (see harness.execution)
    [generation_config]
                 values that the checkpoint's generation config has beside the library's own

    [[weights]]  an extra weight rule, tried before the general ones, wherever this architecture is a part too:
    match = "regular expression searched in the parameter's name"
    kind = "uniform" | "log-uniform" | "normal" | "gain"
    low, high (uniform, log-uniform), mean, std (normal) or gain (of the power that a matrix passes on, its root)

    [[series]]   many values of `reduced` that count up together: names.format(i) = first + i, for i below count
    into = "vocabulary_map"                      # the field of the config, a table, that they are added to
    names = "<|visual token {:06d}|>"
    first = 100                                  # or texts = "token {}", whose texts.format(i) are the values
    count = 256
    table = "generation_config"                  # where it is a field of that, not of `reduced`

    [class.NAME.config], [class.NAME.reduced], [class.NAME.inputs], [class.NAME.generate],
    [class.NAME.generation_config]
                 the same tables for one class of the architecture, laid over those of all
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_lists import ListError

FOLDER = Path(__file__).parent / "recipes"
INPUT_KEYS = {
    "rows": "rows of the `padded` profile, where the model takes another number than two",
    "image_size": "height and width of pictures, pixels: one number, or both",
    "single_image_size": "the same for the `single` profile",
    "image_tokens": "placeholder tokens per picture",
    "pictures": "pictures of a row, as one more dimension",
    "frames": "frames of a video or of log-mel features",
    "patch_pictures": "1 where packed patches are (patches, channels, side, side), 2 with one more dimension before",
    "patch_rows": "2 where pictures are (patches, values), 3 where they are (batch, patches, values)",
    "token_pictures": "4 where each token has a picture, (tokens, side, side, channels), 5 with frames after tokens",
    "inner_pictures": "1 where the forward method passes pictures on to a part without naming them",
    "mask_pictures": "1 where pixel_attention_mask tells which pictures of a row there are, not which pixels",
    "fine_tiles": "1 where the tiles of pictures take the finer of two ways, of more features",
    "codebooks": "codes of each step, the last dimension of input_ids",
    "decoder_codebooks": "the same for decoder_input_ids",
    "codebook_rows": "rows of input_ids that belong to one row of the batch, one for each codebook",
    "decoder_codebook_rows": "the same for decoder_input_ids",
    "mels": "values of each frame of log-mel features",
    "mels_first": "1 where mel bins come before frames",
    "bool_masks": "1 where masks of log-mel features are of bool, not of int64",
    "samples": "samples of an audio wave",
    "waves": "channels of an audio wave, as a dimension of its own",
    "either": "1 where a model takes either a text or a sound: `padded` has the sound",
    "decoder_text": "1 where a decoder takes a text though the config is of no encoder and decoder",
    "encoder_width": "values of each state that a decoder, by itself, is given of the encoder that it attends to",
    "phrase_end": "id of the token that ends each phrase of a text",
    "text_length": "tokens of a text",
    "token_types": "kinds of token, as token_type_ids tell them, of which the config says nothing",
    "unpadded": "1 where the mask hides nothing, since rounding decides what the model says of hidden tokens",
}
_SERIES = {"into": str, "names": str, "first": int, "texts": str, "count": int, "table": str}
_TABLES = ("config", "reduced", "inputs", "generate", "generation_config")
_WITH_SERIES = ("reduced", "generation_config")
_PAIRS = ("image_size", "single_image_size")
_KINDS = {"uniform": ("low", "high"), "log-uniform": ("low", "high"), "normal": ("mean", "std"), "gain": ("gain",)}


@dataclass(frozen=True, slots=True)
class WeightRule:
    """Draw parameters whose name matches `match` from the distribution `kind` with bounds or moments `a`, `b`.

    A "gain" `a` has no `b`: it is that of a matrix whose elements have the standard deviation a / sqrt(fan-in).
    `part` is how the names begin that the rule is about; what follows is the name that `match` is searched in.
    """

    match: re.Pattern[str]
    kind: str
    a: float
    b: float = 0.0
    part: str = ""

    def matches(self, name: str) -> bool:
        """Whether the rule is about the parameter of this full name."""
        return name.startswith(self.part) and self.match.search(name.removeprefix(self.part)) is not None


@dataclass(frozen=True, slots=True)
class Recipe:
    """Deviations of one architecture from the general rules; empty where the rules suffice."""

    config: dict[str, Any] = field(default_factory=dict)
    reduced: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, int | list[int]] = field(default_factory=dict)
    generate: dict[str, bool | str | list[str]] = field(default_factory=dict)
    generation_config: dict[str, Any] = field(default_factory=dict)
    weights: tuple[WeightRule, ...] = ()


def load_recipe(model_type: str, model_class: str = "", folder: Path = FOLDER) -> Recipe:
    """The recipe of a class of `model_type`, empty where there is none. Raises ListError for a malformed one."""
    path = folder / f"{model_type}.toml"
    if not path.is_file():
        return Recipe()
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ListError(f"{path}: cannot be read as TOML: {' '.join(str(error).split())}") from error
    _known(path, "top level", data, ("reason", *_TABLES, "weights", "series", "class"))
    if not isinstance(data.get("reason"), str) or not data["reason"].strip():
        raise ListError(f"{path}: reason is missing; say why the rules are not enough")
    classes = data.get("class", {})
    if not isinstance(classes, dict):
        raise ListError(f"{path}: [class] must be a table")
    _check_tables(path, "", {name: data[name] for name in _TABLES if name in data})
    for name, own in classes.items():
        if not isinstance(own, dict):
            raise ListError(f"{path}: [class.{name}] must be a table")
        _known(path, f"[class.{name}]", own, _TABLES)
        _check_tables(path, f"class.{name}.", own)
    own = classes.get(model_class, {})
    rules, counted = _tables(path, "weights", data), {name: data.get(name, {}) for name in _WITH_SERIES}
    for series in _tables(path, "series", data):
        values = _values(path, series)
        table = series.get("table", "reduced")
        counted[table] = overlaid(counted[table], values)
    return Recipe(
        config=overlaid(data.get("config", {}), own.get("config", {})),
        reduced=overlaid(counted["reduced"], own.get("reduced", {})),
        inputs=data.get("inputs", {}) | own.get("inputs", {}),
        generate=data.get("generate", {}) | own.get("generate", {}),
        generation_config=overlaid(counted["generation_config"], own.get("generation_config", {})),
        weights=tuple(_weight_rule(path, rule) for rule in rules),
    )


def overlaid(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, tables merged into tables."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = overlaid(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    return result


def _check_tables(path: Path, where: str, tables: dict[str, Any]) -> None:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ListError(f"{path}: [{where}{name}] must be a table")
    inputs = tables.get("inputs", {})
    _known(path, f"[{where}inputs]", inputs, INPUT_KEYS)
    for key, value in inputs.items():
        numbers = value if isinstance(value, list) and key in _PAIRS and len(value) == 2 else [value]
        if not all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in numbers):
            valid = f"a positive whole number ({INPUT_KEYS[key]})"
            raise ListError(f"{path}: {where}inputs.{key} is {value!r}; valid: {valid}")
    for key, value in tables.get("generate", {}).items():
        if key == "choosers":
            fits, valid = isinstance(value, list) and all(isinstance(name, str) for name in value), "a list of texts"
        else:
            fits, valid = isinstance(value, bool | str), "true, false, a text"
        if not fits:
            raise ListError(f"{path}: {where}generate.{key} is {value!r}; valid: {valid}")


def _tables(path: Path, key: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """An array of tables, [[key]], of the recipe; empty where it has none."""
    tables = data.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ListError(f"{path}: {key} must be an array of tables, [[{key}]]")
    return tables


def _values(path: Path, series: dict[str, Any]) -> dict[str, Any]:
    """What a series stands for, as a table of `reduced`."""
    _known(path, "[[series]]", series, _SERIES)
    if (table := series.get("table", "reduced")) not in _WITH_SERIES:
        raise ListError(f"{path}: [[series]] table is {table!r}; valid: {', '.join(_WITH_SERIES)}")
    values = "texts" if "texts" in series else "first"
    for key in ("into", "names", values, "count"):
        value, kind = series.get(key), _SERIES[key]
        if type(value) is not kind or (kind is int and value < 0):
            valid = "a text" if kind is str else "a whole number"
            raise ListError(f"{path}: [[series]] {key} is {value!r}; valid: {valid}")
    try:
        found = {
            series["names"].format(i): series["texts"].format(i) if values == "texts" else series["first"] + i
            for i in range(series["count"])
        }
    except (ValueError, LookupError, AttributeError) as error:
        raise ListError(f"{path}: [[series]] names is no format of a number: {error}") from error
    if len(found) < series["count"]:
        raise ListError(f"{path}: [[series]] names must give each number its own name, as 'token {{:03d}}' does")
    return {series["into"]: found}


def _weight_rule(path: Path, rule: dict[str, Any]) -> WeightRule:
    kind = rule.get("kind")
    if kind not in _KINDS:
        raise ListError(f"{path}: weights.kind is {kind!r}; valid: {', '.join(_KINDS)}")
    wanted = ("match", "kind", *_KINDS[kind])
    _known(path, "[[weights]]", rule, wanted)
    missing = [key for key in wanted if key not in rule]
    if missing:
        raise ListError(f"{path}: [[weights]] lacks {', '.join(missing)}")
    numbers = [rule[key] for key in _KINDS[kind]]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise ListError(f"{path}: [[weights]] {' and '.join(_KINDS[kind])} must be numbers")
    try:
        match = re.compile(rule["match"])
    except (re.error, TypeError) as error:
        raise ListError(f"{path}: weights.match is no regular expression: {error}") from error
    return WeightRule(match, kind, *map(float, numbers))


def _known(path: Path, where: str, table: dict[str, Any], valid) -> None:
    unknown = [key for key in table if key not in valid]
    if unknown:
        raise ListError(f"{path}: unknown key {unknown[0]!r} in {where}; valid: {', '.join(valid)}")
