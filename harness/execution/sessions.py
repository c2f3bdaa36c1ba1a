"""Sessions of models that follow a video: from the plain data of the inputs to the live object, as a user makes one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import transformers

NAME = "inference_session"
"""The argument whose value is not what `harness.inputs` makes but what is opened from it."""


def calls(inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Keyword arguments for the model's forward method, one call for each frame in order, on one fresh session.

    `inputs` as `harness.inputs.sessions` makes them, on any device and in any floating type: the session takes
    both from the video.
    """
    given = dict(inputs)
    session = _opened(given.pop(NAME))
    for frame in range(session.num_frames):
        yield {NAME: session, "frame_idx": frame, **given}


def _opened(data: dict[str, Any]) -> Any:
    video = data["video"]
    session = getattr(transformers, data["class"])(
        video=video,
        video_height=video.shape[-2],
        video_width=video.shape[-1],
        inference_device=video.device,
        inference_state_device=video.device,
        video_storage_device=video.device,
        dtype=video.dtype,
    )
    for number, prompt in enumerate(data["prompts"]):
        if "input_ids" in prompt:
            key = session.add_prompt(f"text {number}")
            session.prompt_input_ids[key] = prompt["input_ids"]
            session.prompt_attention_masks[key] = prompt["attention_mask"]
            continue
        index = session.obj_id_to_idx(prompt["object"])
        if "mask" in prompt:
            session.add_mask_inputs(index, 0, prompt["mask"])
        else:
            points = {"point_coords": prompt["points"], "point_labels": prompt["labels"]}
            session.add_point_inputs(index, 0, points)
        session.obj_with_new_inputs.append(prompt["object"])
    return session
