"""The truth keeps float64 where a model names float32."""

from __future__ import annotations

import torch

from harness.execution.double import Double


def test_float32_by_any_name_is_float64():
    x = torch.ones(3, dtype=torch.float64) / 3
    with Double():
        made = [
            x.float(),
            x.to(torch.float32),
            x.to(dtype=torch.float32),
            x.type(torch.float32),
            torch.zeros(2),
            torch.ones(2, dtype=torch.float32),
            torch.softmax(x, dim=-1, dtype=torch.float32),
            torch.arange(3, dtype=torch.float32),
        ]
    assert {tensor.dtype for tensor in made} == {torch.float64}
    assert torch.equal(made[0], x)


def test_whole_numbers_and_the_default_type_are_left_alone():
    before = torch.get_default_dtype()
    with Double():
        assert torch.ones(2, dtype=torch.int64).to(torch.int32).dtype is torch.int32
    assert torch.get_default_dtype() is before
    assert torch.ones(2, dtype=torch.float64).float().dtype is torch.float32


def test_a_model_that_rounds_on_its_way_does_not_round_the_truth():
    weights = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def model(x: torch.Tensor) -> torch.Tensor:
        return (x.float() @ weights.to(torch.float32)).to(x.dtype)

    x = torch.randn(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact = x @ weights
    assert not torch.equal(model(x), exact)
    with Double():
        assert torch.equal(model(x), exact)


def test_random_numbers_are_those_of_the_run_at_float32():
    def draws(dtype: torch.dtype) -> list[torch.Tensor]:
        torch.manual_seed(0)
        like = torch.zeros(5, dtype=dtype)
        return [
            torch.randn(4),
            torch.rand(2, 3),
            torch.randn_like(like),
            torch.rand_like(like),
            torch.zeros(3, dtype=dtype).normal_(),
            torch.empty(3, dtype=dtype).uniform_(1, 2),
            torch.nn.init.uniform_(torch.empty(3, dtype=dtype), b=2.0),
            torch.bernoulli(torch.full((6,), 0.5, dtype=dtype)),
        ]

    single = draws(torch.float32)
    with Double():
        double = draws(torch.float64)
    for narrow, wide in zip(single, double, strict=True):
        assert wide.dtype is torch.float64
        assert torch.equal(narrow.double(), wide)
