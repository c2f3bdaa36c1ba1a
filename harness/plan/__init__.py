"""What a run consists of: which cases, how long they will take, which of them fit, and who runs which.

Pure functions over plain records; nothing here reads a file, imports torch or touches a device.
"""

from __future__ import annotations

from harness.plan.selection import (
    FIELDS_AFTER_ENTRY,
    PlanError,
    attempted,
    digest,
    dtypes_of,
    from_ids,
    lacking,
    names_case,
    not_attempted,
    plan,
    select,
    unknown,
    words_of,
)

__all__ = [
    "FIELDS_AFTER_ENTRY",
    "PlanError",
    "attempted",
    "digest",
    "dtypes_of",
    "from_ids",
    "lacking",
    "names_case",
    "not_attempted",
    "plan",
    "select",
    "unknown",
    "words_of",
]
