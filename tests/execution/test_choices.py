"""Choices between nearly equal scores: watched, and made again."""

from __future__ import annotations

import pytest
import torch

from harness.execution.choices import Forcing, Watching, exposed, noises

SCORES = torch.tensor([[0.1, 0.5, 0.5 + 1e-7, 0.9], [4.0, 3.0, 2.0, 1.0]])


def each(x):
    """Every way to choose that is watched, on (2, 4)."""
    return [
        torch.topk(x, 2).indices,
        x.topk(k=3, dim=-1, sorted=False)[1],
        x.argmax(-1),
        torch.argmax(x),
        x.argmin(dim=0, keepdim=True),
        x.max(dim=1).indices,
        torch.min(x, 1, keepdim=True)[1],
        x.sort(descending=True)[1],
        torch.argsort(x, dim=0),
    ]


def test_every_way_to_choose_is_watched_by_rows_and_nothing_else_is():
    with Watching(scores=True) as watched:
        returned = each(SCORES)
        SCORES.max()
        torch.max(SCORES, SCORES.flip(0))
        torch.arange(4).sort()
    assert [picked.numel() for picked in watched.picks] == [x.numel() for x in returned]
    assert all(len(picked) == len(scores) for picked, scores in zip(watched.picks, watched.scores, strict=True))
    assert watched.picks[0].tolist() == [[3, 2], [0, 1]]
    assert watched.picks[4].tolist() == [[0], [0], [0], [0]]


def test_a_compiled_program_shows_what_is_watched_in_the_uncompiled_one():
    seen = []
    compiled = torch.compile(lambda x: each(x * 2), backend=exposed(lambda graph, examples: graph.forward, seen))
    with Watching() as watched:
        plain = each(SCORES * 2)
    for expected, got in ((plain, compiled(SCORES)), (watched.picks, seen)):
        assert [x.tolist() for x in got] == [x.tolist() for x in expected]
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("choose", "picks", "flips"),
    [
        (lambda x: torch.topk(x, 2), [[3, 1], [0, 1]], 1),  # the second place of the first row was a toss-up
        (lambda x: torch.topk(x, 2), [[2, 3], [0, 1]], 0),  # not the first place
        (lambda x: torch.topk(x, 2), [[3, 1], [1, 0]], 1),  # nor anything of the second row
        (lambda x: torch.topk(x, 2, sorted=False), [[1, 3], [1, 0]], 2),  # in no order
        (lambda x: torch.topk(x, 2), [[3, 3], [0, 1]], 0),  # no choice at all
        (lambda x: torch.topk(x, 2), [[3, 7], [0, -1]], 0),
        (lambda x: x[:, 1:3].max(1), [[0], [0]], 1),
        (lambda x: x.sort(1), [[0, 2, 1, 3], [3, 2, 1, 0]], 1),
    ],
)
def test_a_run_is_made_to_choose_otherwise_only_where_that_is_as_good(choose, picks, flips):
    own = choose(SCORES)
    with Forcing([torch.tensor(picks)], [1e-6]) as forced:
        values, indices = choose(SCORES)
    assert forced.flips == flips
    wanted = torch.tensor(picks).reshape(indices.shape)
    for row in range(2):
        assert indices[row].tolist() in (own.indices[row].tolist(), wanted[row].tolist())
    assert torch.equal(indices, own.indices) is (flips == 0)
    assert torch.allclose(values.sort(-1).values, own.values.sort(-1).values, atol=1e-6)


def test_of_equal_scores_the_first_is_the_greatest_and_the_least():
    for ties, chosen in ((False, 1), (True, 2)):
        with Forcing([torch.tensor([[2]])], [1e-6], ties=ties) as forced:
            assert torch.tensor([[1.0, 2.0, 2.0]]).argmax(1).item() == chosen
        assert forced.flips == ties


def test_the_noise_of_scores_is_that_of_the_unmasked_ones():
    truth = torch.tensor([[1.0, -1e9, 0.5, 0.25]], dtype=torch.float64)
    (noise,) = noises([(truth * (1 + 1e-6)).float()], [truth])
    assert 1e-6 < noise < 1e-4
    assert noises([truth.float()], [truth[:, :2]]) is None
