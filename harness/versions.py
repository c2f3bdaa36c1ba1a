"""The packages whose version can change a result, and which of them are installed."""

from __future__ import annotations

from importlib import metadata

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


def installed() -> dict[str, str | None]:
    """The version of each of `PACKAGES`, None where it is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
