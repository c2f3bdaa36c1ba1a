"""Keeps credentials out of what is written down. Texts of unknown origin go through here on their way into records."""

from __future__ import annotations

import os
import re

SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
"""Environment variables that hold a Hub token, the first the one in use today."""
HIDDEN = "<hidden>"

_SHORTEST = 8
"""A shorter value of such a variable is no token, and its letters occur in any text."""
# Every repetition that may fail late is bounded: texts have millions of characters.
_PATTERNS = (
    (re.compile(r"\b(hf|api_org)_(?:[A-Za-z0-9]{16,}|jwt_[\w.-]{16,})"), HIDDEN),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"://[^\s/@?#]{1,512}@"), f"://{HIDDEN}@"),
    # Links that a store signs are keys to a file as long as they last.
    (
        re.compile(
            r"([?&](?:X-(?:Amz|Goog)-[\w-]{1,32}|Signature|sig|Key-Pair-Id|Policy|(?:access_)?token)=)[^&\s\"']+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)


def redacted(text: str) -> str:
    """`text` without Hub tokens, authorisation headers, users and passwords in addresses, and signatures of links."""
    for name in SECRETS:
        value = os.environ.get(name, "").strip()
        if len(value) >= _SHORTEST:
            text = text.replace(value, HIDDEN)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
