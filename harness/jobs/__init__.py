"""The life of a model's process tree: spawn, stages, limits, and a record whatever happens."""

from harness.jobs.runner import JobRunner, probe
from harness.jobs.supervisor import Limits

__all__ = ["JobRunner", "Limits", "probe"]
