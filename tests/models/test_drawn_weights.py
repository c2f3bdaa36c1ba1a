"""Weights are drawn by the role a tensor plays, on modules of torch alone."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

from harness import models
from harness.models import registered
from harness.models.weights import draw
from model_lists.recipes import WeightRule


class Snake1d(nn.Module):
    """Stands for the activation of that name."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, 32, 1))


@pytest.mark.parametrize(("activation", "gain"), [(nn.ReLU(), math.sqrt(2)), (Snake1d(), 1.0)])
def test_convolutions_gain_what_the_activation_beside_them_loses(activation, gain):
    block = nn.Sequential(nn.Conv1d(32, 32, 3), activation, nn.Conv1d(32, 32, 3))
    draw(block, seed=0)
    for convolution in (block[0], block[2]):
        assert convolution.weight.std().item() == pytest.approx(gain / math.sqrt(32 * 3), rel=0.05)


def test_a_snake_that_another_module_wraps_is_told_by_its_name():
    block = nn.Sequential()
    block.add_module("snake1", nn.Sequential(nn.Identity(), nn.ReLU()))
    block.add_module("conv1", nn.Conv1d(32, 32, 3))
    draw(block, seed=0)
    assert block.conv1.weight.std().item() == pytest.approx(1 / math.sqrt(32 * 3), rel=0.05)


def test_the_same_seed_and_name_draw_the_same_in_any_company():
    alone, together = nn.ModuleDict({"a": nn.Linear(4, 4)}), nn.ModuleDict({"b": nn.Linear(4, 4), "a": nn.Linear(4, 4)})
    for model in (alone, together):
        draw(model, seed=1)
    assert torch.equal(alone["a"].weight, together["a"].weight)
    assert not torch.equal(together["a"].weight, together["b"].weight)


def test_a_rule_gives_a_matrix_the_gain_it_says():
    model = nn.Sequential(nn.Linear(64, 64), nn.Conv1d(32, 32, 3))
    draw(model, seed=0, extra=(WeightRule(re.compile("weight$"), "gain", 3.0),))
    for matrix, fan_in in ((model[0].weight, 64), (model[1].weight, 32 * 3)):
        assert matrix.std().item() == pytest.approx(3 / math.sqrt(fan_in), rel=0.05)


def test_a_part_is_drawn_by_its_own_recipe_in_every_architecture_that_has_it(tmp_path):
    entry = registered.entry(registered.base_pairs()["slanet"])  # has no rules, and a PP-LCNet, which has
    model = models.load(entry, models.build(entry, tmp_path, seed=0).folder, "float32", "cpu")
    part = model.backbone.vision_backbone
    scales = [value for name, value in part.named_parameters() if name.endswith("normalization.weight")]
    assert torch.cat(scales).mean().item() == pytest.approx(1.35, abs=0.01)


def test_a_rule_about_a_part_sees_names_as_the_part_has_them():
    model = nn.ModuleDict({"a": nn.ModuleDict({"b": nn.Linear(4, 4)}), "b": nn.Linear(4, 4)})
    draw(model, seed=0, extra=(WeightRule(re.compile(r"^b\.bias$"), "normal", 5.0, 0.0, part="a."),))
    assert model["a"]["b"].bias.tolist() == [5.0] * 4
    assert model["b"].bias.abs().max() < 1
