"""The few sizes that all models shrink to: backends compile per shape and can then reuse each other's programs."""

from __future__ import annotations

WIDTH = 64
"""Width of the residual stream; every projection between modalities has it too."""
NARROW = 32
"""Width of an embedding that was narrower than the residual stream."""
INNER = 128
"""Width of a feed-forward layer."""
HEADS = 4
HEAD = 16
"""Elements of an attention head; twice that where the heads together were not as wide as the stream."""
INDEX_HEADS = 16
"""Heads that choose the keys of sparse attention. What each makes of a key is zero for every other one; where all of
few heads agree on that, keys tie, and no two devices need choose alike among ties."""
RANK = 32
ROTARY = 8
"""Rotated elements of a head in low-rank attention."""
LAYERS = 2
VOCABULARY = 512
POSITIONS = 128
WINDOW = 8
"""Attention windows, chunks and blocks: shorter than the shortest text of `harness.inputs` (13 tokens)."""
EXPERTS = 4
STATE = 16
CODEC_WIDTH = 8
"""Channels of a codec's first convolutions."""
MELS = 32
FRAMES = 4
PATCHES = 4
"""Patches along each side of a picture."""
SHIFTED_WINDOW = 4
"""Side in patches of the windows that are shifted over a picture; the last stage is one window."""
STAGE_PICTURE = 64
"""Side of a picture for models that shrink it in stages (up to 32 times)."""
