"""The packages whose version can change a result, and which of them are installed."""

from __future__ import annotations

import os
from importlib import metadata

from packaging.utils import canonicalize_name

PACKAGES = (
    "torch",
    "torch_tpu",
    "libtpu",
    "lammps-jax-pjrt-cpu",
    "transformers",
    "accelerate",
    "tokenizers",
    "safetensors",
    "numpy",
    "model-zoo-conformance",
)
"""Names of distributions."""

UNDER_TEST = "ZOO_UNDER_TEST"
"""Environment variable with the name of one more distribution, whose versions are being compared."""


def installed() -> dict[str, str | None]:
    """The version of each of `PACKAGES` and of what is under test, None where it is not installed."""
    known = {canonicalize_name(name) for name in PACKAGES}
    more = [name for name in (os.environ.get(UNDER_TEST),) if name and canonicalize_name(name) not in known]
    return {name: _version(name) for name in (*PACKAGES, *more)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
