"""What a job's process tells its supervisor: the stage it enters, then one result."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

from harness.cases import Stage
from harness.jobs.channel import Channel

_HARNESS = Path(__file__).parents[1]
_MISTAKES = (AttributeError, ImportError, ModuleNotFoundError, KeyError, NameError, TypeError)

NAME_CHARACTERS, MESSAGE_CHARACTERS, TEXT_CHARACTERS = 200, 4_000, 16_000
"""Longest name of a type, message and whole text that travel; head and tail are kept, since both tell."""


class Report:
    """Announces stages before they are entered and delivers the result."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.stage: Stage | None = None

    def enter(self, stage: Stage) -> None:
        """Announce `stage`."""
        self.stage = stage
        self._channel.send({"stage": stage, "at": time.monotonic()})

    def deliver(self, **result: Any) -> None:
        """Deliver the result of the job; the process ends after it."""
        self._channel.send({"result": result, "at": time.monotonic()})

    def fail(self, error: BaseException) -> None:
        """Deliver an exception as the result."""
        self.deliver(
            error={
                "type": type(error).__name__[:NAME_CHARACTERS],
                "errno": getattr(error, "errno", None),
                "ours": _is_ours(error),
                "message": clipped(said(error) or type(error).__name__, MESSAGE_CHARACTERS),
                "detail": clipped("".join(traceback.format_exception(error))),
            }
        )


def said(error: BaseException) -> str:
    """An exception's text, or that it has none: the code that makes it may be a model's, and fail itself."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - of a model's own code, which may raise anything
        return f"its text cannot be made ({type(another).__name__})"


def _is_ours(error: BaseException) -> bool:
    """Is this a mistake in the harness's own code? What a backend raises in a call from there has another type."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error) in _MISTAKES and bool(frames) and Path(frames[-1].filename).is_relative_to(_HARNESS)


def clipped(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """`text` as valid Unicode, with its middle left out where it is too long to travel."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
