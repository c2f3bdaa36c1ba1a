"""What of a config changes a computation: configs that differ in nothing else make the same model."""

from __future__ import annotations

from typing import Any

_NAMES = (
    *("_name_or_path", "architectures", "auto_map"),
    *("id2label", "label2id", "task_specific_params", "transformers_version"),
)
"""Fields that name things and change no computation."""


def relevant(value: Any) -> Any:
    """A config as JSON has it, without what only names things, at any depth."""
    match value:
        case dict():
            return {name: relevant(item) for name, item in value.items() if name not in _NAMES}
        case list():
            return [relevant(item) for item in value]
        case _:
            return value
