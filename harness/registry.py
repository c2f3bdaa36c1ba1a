"""What the installed libraries register, read from their source as text: nothing of them is imported.

So that a list can be checked at once, with no torch. `harness.derived` has the whole truth, and takes a minute.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from model_lists import ListError

_AUTO = ("auto_mappings.py", "configuration_auto.py", "modeling_auto.py")
_TYPES = "CONFIG_MAPPING_NAMES"
_CLASSES = re.compile(r"MODEL(_FOR_\w+)?_MAPPING_NAMES")
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Registry:
    """The model types of a transformers, and for each the classes that its auto mappings name."""

    folder: Path
    version: str
    classes: dict[str, frozenset[str]]

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every class that the modeling code defines, registered or not."""
        files = sorted((self.folder / "models").glob("*/modeling_*.py"))
        return frozenset(name for file in files for name in _CLASS.findall(file.read_text(encoding="utf-8")))

    @cached_property
    def registered(self) -> frozenset[str]:
        """Every class that is registered for some type."""
        return frozenset().union(*self.classes.values())


def transformers_registry() -> Registry:
    """What the installed transformers registers. Raises ListError where it is absent, or written in another way."""
    folder = _folder("transformers")
    if folder is None:
        raise ListError("transformers is not installed: model types and classes cannot be checked")
    types: set[str] = set()
    pairs: dict[str, set[str]] = {}
    try:
        for name in _AUTO:
            for table, model_type, named in _entries(folder / "models" / "auto" / name):
                if table == _TYPES:
                    types.add(model_type)
                elif _CLASSES.fullmatch(table):
                    pairs.setdefault(model_type, set()).update(named)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ListError(f"{folder}: the auto mappings cannot be read: {error}") from error
    if not types or not pairs:
        raise ListError(f"{folder}: no auto mappings found: this transformers is laid out in a way not known here")
    classes = {model_type: frozenset(pairs.get(model_type, ())) for model_type in sorted(types)}
    return Registry(folder, metadata.version("transformers"), classes)


def diffusers_names() -> frozenset[str] | None:
    """Every name that the installed diffusers exports; None where it is not installed, so that nothing is known."""
    folder = _folder("diffusers")
    if folder is None:
        return None
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return frozenset(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is str
    )


def _folder(package: str) -> Path | None:
    found = importlib.util.find_spec(package)
    return Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None


def _entries(file: Path) -> Iterator[tuple[str, str, list[str]]]:
    """(table, key, names) for all that is written into a table of names, where it is made or updated."""
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=table)], value=value):
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="update")) as value):
                pass
            case _:
                continue
        for node in ast.walk(value):
            match node:
                case ast.Tuple(elts=[ast.Constant(value=str(key)), names]):
                    yield table, key, _texts(names)
                case ast.Dict(keys=keys, values=values):
                    for key, names in zip(keys, values, strict=True):
                        if isinstance(key, ast.Constant):
                            yield table, key.value, _texts(names)


def _texts(node: ast.AST) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
