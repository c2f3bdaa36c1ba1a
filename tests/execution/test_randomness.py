"""Compiled programs are given the numbers that they would have drawn."""

from __future__ import annotations

import pytest
import torch

from harness.execution.randomness import drawn_outside


def noisy(x):
    rotations = torch.randn(3, x.shape[1], dtype=x.dtype, device=x.device)
    transposed = torch.randn_like(x.repeat(8, 1).T).sum(0) * torch.randint_like(x.repeat(8, 1).T.int(), 2, 9).sum()
    whole = torch.rand_like(x[:, :3]) * torch.randint(1, 9, (1,))
    return x @ rotations.T + whole, transposed, torch.randperm(5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_program_draws_what_the_uncompiled_one_does_at_every_call(backend):
    torch._dynamo.reset()
    x, drawn = torch.ones(2, 4), []

    def seen(graph, examples):
        drawn.extend(node for node in graph.graph.nodes if "rand" in getattr(node.target, "__name__", ""))
        return torch._dynamo.lookup_backend(backend)(graph, examples)

    compiled = torch.compile(noisy, backend=drawn_outside(seen))
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        expected = noisy(x)
        torch.manual_seed(seed)
        assert all(map(torch.equal, compiled(x), expected))
    assert not drawn, "the program itself draws nothing"
    torch._dynamo.reset()


def test_a_program_that_draws_nothing_is_the_backends_own():
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    assert drawn_outside(lambda graph, examples: graph.forward)(graph, []) == graph.forward
