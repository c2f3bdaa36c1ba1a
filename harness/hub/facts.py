"""What the Hub says of a model, and the model's own config: all that an entry of a list is drafted from."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.hf_api import ModelInfo

from harness.cases import Entry, Verdict, Weights
from harness.hub.client import patient, visiting
from harness.hub.fetch import Settings, fetch_all
from harness.hub.index import Unfetched


@dataclass(frozen=True, slots=True)
class Facts:
    """A model as the Hub has it: its id of today, the commit, what its config.json holds, and what else is said.

    `stored` counts the elements of its safetensors by floating type (`F32`). What the Hub does not say is empty, and
    `gated` "unknown".
    """

    model_id: str
    revision: str
    config: dict[str, Any]
    library: str
    task: str
    stored: dict[str, int]
    gated: str
    custom_code: str


def facts(model_id: str, revision: str, settings: Settings) -> Facts:
    """What is known of a model, at its newest revision where `revision` is empty. Raises Unfetched, and OSError."""
    with patient(settings.patience), visiting(settings.patience, threading.Event()):
        info = _info(model_id, revision, settings)
    asked = Entry(
        info.id, info.sha, "transformers", "unknown", "Unknown", "text-encoder", "", None, "full", Weights.CONFIG
    )
    (ended,) = fetch_all([asked], settings)
    if ended.fetched.failed is not None:
        raise Unfetched(ended.fetched.failed, ended.fetched.message)
    with open(ended.fetched.config, encoding="utf-8") as file:
        try:
            config = json.load(file)
        except ValueError as error:
            raise Unfetched(Verdict.GONE, f"{model_id}: its config.json is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise Unfetched(Verdict.GONE, f"{model_id}: its config.json holds no config")
    kinds = info.safetensors.parameters if info.safetensors else {}
    return Facts(
        model_id=info.id,
        revision=info.sha,
        config=config,
        library=info.library_name or "",
        task=info.pipeline_tag or "",
        stored={kind: count for kind, count in kinds.items() if kind.startswith(("F", "BF"))},
        gated="unknown" if info.gated is None else "yes" if info.gated else "no",
        custom_code="yes" if "auto_map" in config or "custom_code" in (info.tags or ()) else "no",
    )


def _info(model_id: str, revision: str, settings: Settings) -> ModelInfo:
    try:
        info = HfApi(endpoint=settings.endpoint).model_info(model_id, revision=revision or None)
    except httpx2.HTTPError as error:
        raise Unfetched(Verdict.HUB_ERROR, f"{model_id}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        said = f"{model_id}: the Hub's answer is not that of a Hub: {type(error).__name__}: {error}"
        raise Unfetched(Verdict.HUB_ERROR, said) from error
    if not info.sha:
        raise Unfetched(Verdict.HUB_ERROR, f"{model_id}: the Hub does not say which commit it is")
    return info
