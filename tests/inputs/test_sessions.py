"""Inputs of models that follow a video: plain data that both sides open into a session of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.cases import Phase, Profile
from harness.execution import outputs, phases, sessions
from harness.inputs import cast, digest, make
from harness.models import build, load, registered
from harness.models.reduce import reduced_config
from model_lists.recipes import load_recipe


def described(model_type: str, profile: Profile = Profile.PADDED) -> dict:
    from transformers import CONFIG_MAPPING

    entry = registered.entry(registered.base_pairs()[model_type])
    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    return make(entry, config, Path("absent"), profile, 0)


@pytest.mark.parametrize("model_type", ["sam2_video", "edgetam_video", "sam3_tracker_video", "sam3_video"])
def test_a_description_survives_a_file_that_may_hold_no_code(model_type, tmp_path):
    inputs = described(model_type)
    torch.save(inputs, tmp_path / "inputs.pt")
    assert digest(torch.load(tmp_path / "inputs.pt", weights_only=True)) == digest(inputs)
    assert digest(described(model_type, Profile.SINGLE)) != digest(inputs)


def test_digest_sees_what_lies_inside():
    inputs = described("sam2_video")
    changed = described("sam2_video")
    changed["inference_session"]["prompts"][1]["points"] += 1
    assert digest(changed) != digest(inputs)
    changed = described("sam2_video")
    changed["inference_session"]["prompts"].pop()
    assert digest(changed) != digest(inputs)


def test_cast_reaches_every_floating_tensor():
    data = cast(described("sam2_video"), "bfloat16")["inference_session"]
    assert {data["video"].dtype, data["prompts"][0]["points"].dtype} == {torch.bfloat16}
    assert data["prompts"][0]["labels"].dtype is torch.int32


def test_every_run_opens_a_session_of_its_own_with_the_prompts_in_it():
    inputs = described("sam2_video")
    first, again = (list(sessions.calls(inputs)) for _ in range(2))
    assert [call["frame_idx"] for call in first] == [0, 1, 2]
    session = first[0]["inference_session"]
    assert all(call["inference_session"] is session for call in first)
    assert session is not again[0]["inference_session"]
    assert session.obj_ids == [1, 2]
    assert session.obj_with_new_inputs == [1, 2]
    points = session.point_inputs_per_obj[0][0]
    assert points["point_coords"].shape == (1, 1, 4, 2)
    assert points["point_labels"].tolist() == [[[2, 3, 1, 0]]]
    masked, absent = described("sam2_video", Profile.SINGLE)["inference_session"]["prompts"]
    assert set(masked["mask"].unique().tolist()) == {0, 1}
    assert not absent["mask"].any()


def test_texts_are_prompts_of_models_that_read_them():
    (first, *_) = sessions.calls(described("sam3_video"))
    session = first["inference_session"]
    assert sorted(session.prompts) == [0, 1]
    assert session.prompt_input_ids[1].shape == session.prompt_attention_masks[1].shape
    assert 0 in session.prompt_attention_masks[1]


def test_frames_are_answered_in_order_and_later_ones_remember(tmp_path):
    entry = registered.entry(registered.base_pairs()["sam2_video"])
    model = load(entry, build(entry, tmp_path / "checkpoint", 0).folder, "float32", "cpu")
    inputs = described("sam2_video")

    def answers(given: dict) -> dict[str, torch.Tensor]:
        return outputs.leaves(phases.run(Phase.FORWARD, model, phases.moved(given, "cpu"), 0))

    found, again = answers(inputs), answers(inputs)
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert {name.split(".")[0] for name in found} == {"0", "1", "2"}
    other = described("sam2_video")
    other["inference_session"]["video"][0] = 0
    assert not torch.allclose(answers(other)["2.pred_masks"], found["2.pred_masks"])
