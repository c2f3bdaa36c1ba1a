"""What of a model's outputs is of padding."""

from __future__ import annotations

import torch

from harness.cases import Phase
from harness.execution.padding import hidden

LEFT = torch.tensor([[1, 1, 1], [0, 1, 1]])


def shapes(**leaves: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {name.replace("__", "."): torch.zeros(shape) for name, shape in leaves.items()}


def test_leaves_by_token_lose_the_tokens_that_the_mask_hides():
    leaves = shapes(
        logits=(2, 3, 5), router_logits__0=(6, 4), pooler_output=(2, 5), past_key_values__0__keys=(2, 4, 3, 8)
    )
    found = hidden({"attention_mask": LEFT}, leaves, Phase.FORWARD)
    assert found.keys() == leaves.keys() - {"pooler_output"}
    assert all(found[path].shape == leaf.shape for path, leaf in leaves.items() if path in found)
    assert found["logits"].nonzero()[:, :2].unique(dim=0).tolist() == [[1, 0]]
    assert found["router_logits.0"].nonzero()[:, 0].unique().tolist() == [3]
    assert found["past_key_values.0.keys"].nonzero()[:, [0, 2]].unique(dim=0).tolist() == [[1, 0]]


def test_a_cache_that_has_grown_hides_nothing_of_what_was_generated():
    leaves = shapes(past_key_values__0__values=(2, 4, 5, 8))
    found = hidden({"attention_mask": LEFT}, leaves, Phase.GENERATE)
    assert found["past_key_values.0.values"].nonzero()[:, [0, 2]].unique(dim=0).tolist() == [[1, 0]]
    assert not hidden({"attention_mask": LEFT}, leaves, Phase.FORWARD)


def test_an_encoder_and_a_decoder_have_padding_of_their_own():
    leaves = shapes(logits=(2, 3, 5), encoder_last_hidden_state=(2, 3, 5), past_key_values__cross__0__keys=(2, 4, 3, 8))
    of_encoder = hidden({"attention_mask": LEFT}, leaves, Phase.FORWARD)
    assert of_encoder.keys() == {"encoder_last_hidden_state", "past_key_values.cross.0.keys"}
    both = hidden({"attention_mask": LEFT, "decoder_attention_mask": LEFT.flip(1)}, leaves, Phase.FORWARD)
    assert both["logits"].nonzero()[:, 1].unique().tolist() == [2]


def test_a_mask_that_hides_nothing_or_is_no_mask_of_tokens_hides_nothing():
    leaves = shapes(logits=(2, 3, 5))
    for mask in (torch.ones(2, 3), LEFT.float(), LEFT[:, None, None, :], None):
        assert not hidden({"attention_mask": mask}, leaves, Phase.FORWARD)
