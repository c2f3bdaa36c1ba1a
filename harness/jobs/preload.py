"""What the servers import before they fork: everything jobs share and no job must pay for."""

from __future__ import annotations

import warnings

from harness import targets
from harness.targets import process
from harness.targets.base import Target

_loaded: list[Target] = []


def loaded() -> Target:
    """The target this process was preloaded with: the very object, since it may hold what it has installed."""
    return _loaded[0]


def _libraries() -> None:
    import accelerate  # noqa: F401
    import torch
    import transformers.generation.utils
    import transformers.image_processing_utils
    import transformers.masking_utils
    import transformers.modeling_layers
    import transformers.modeling_utils
    import transformers.models.auto.modeling_auto
    import transformers.tokenization_utils_tokenizers  # noqa: F401
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    from transformers.utils import logging

    import harness.execution.reference
    import harness.inputs
    import harness.models  # noqa: F401

    get_checkpoint_conversion_mapping("")  # compiles a thousand patterns, at the first load of a process otherwise
    # One thread a process: workers fill the cores, sums are made in one order, and forking stays safe
    # because no thread pool exists.
    torch.set_num_threads(1)
    process.prepare_forks()
    logging.disable_progress_bar()


def reference(_: str) -> dict[str, str]:
    """Preload for CPU references: no backend is loaded, since some patch torch when they are."""
    _libraries()
    import harness.jobs.reference_job  # noqa: F401

    return {}


def target(name: str) -> dict[str, str]:
    """Preload for the target `name`, up to but without its device client. Returns what `Target.describe` says.

    Raises TargetUnavailable.
    """
    warnings.simplefilter("once")
    chosen = targets.resolve(name)
    chosen.preload()
    _loaded.append(chosen)
    _libraries()
    import harness.jobs.target_job  # noqa: F401

    return chosen.describe()
