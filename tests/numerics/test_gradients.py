"""Gradients that cancel are judged by the typical one; all others by themselves."""

from __future__ import annotations

import pytest
import torch

from harness.cases import Verdict
from harness.numerics.judge import judge
from harness.numerics.reference_health import diagnose


def drawn(seed: int) -> torch.Tensor:
    return torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def leaves(cancelled: float, prefix: str = "grad.", error: float = 0.0) -> dict[str, torch.Tensor]:
    """Nine ordinary gradients, one huge, and one whose terms cancel to rounding of size `cancelled`."""
    found = {f"{prefix}{number}": drawn(number) * (1 + error * drawn(90 + number)) for number in range(9)}
    return found | {f"{prefix}huge": 1e6 * drawn(20), f"{prefix}key.bias": cancelled * drawn(30)}


TRUTH = leaves(1e-17)


def single(found):
    return {name: leaf.float() for name, leaf in found.items()}


def test_a_cancelled_gradient_is_healthy_and_may_be_noise_of_another_size():
    cpu, target = single(leaves(1e-8, error=1e-7)), single(leaves(-9e-7, error=2e-7))
    assert diagnose(TRUTH, cpu, cpu) is None
    assert judge(TRUTH, cpu, target).verdict is Verdict.PASS


def test_other_leaves_have_no_such_floor():
    truth, cpu, target = (leaves(size, "logits.") for size in (1e-17, 1e-8, -9e-7))
    assert judge(truth, single(cpu), single(target)).verdict is Verdict.NUMERIC_MISMATCH
    assert diagnose(truth, single(cpu), single(cpu))[0] is Verdict.WEAK_REFERENCE


@pytest.mark.parametrize("name", ["grad.3", "grad.key.bias", "grad.huge"])
def test_a_wrong_gradient_is_seen_however_large_another_is(name):
    cpu = single(leaves(1e-8, error=1e-7))
    target = cpu | {name: cpu[name] + 1e-4 * max(1.0, cpu[name].abs().max().item())}
    judged = judge(TRUTH, cpu, target)
    assert judged.verdict is Verdict.NUMERIC_MISMATCH
    assert judged.worst.path == name


def test_a_gradient_on_one_side_only_is_seen():
    cpu = single(TRUTH)
    without = {name: leaf for name, leaf in cpu.items() if name != "grad.3"}
    assert judge(TRUTH, cpu, without).verdict is Verdict.WRONG_STRUCTURE


def test_noise_of_typical_size_and_gradients_of_nothing_are_sick():
    noisy = single(TRUTH | {"grad.key.bias": 0.5 * drawn(40)})
    assert diagnose(TRUTH, noisy, noisy)[0] is Verdict.WEAK_REFERENCE
    zero = {"loss": torch.tensor(2.0), "grad.a": torch.zeros(4)}
    assert diagnose({name: leaf.double() for name, leaf in zero.items()}, zero, zero)[0] is Verdict.WEAK_REFERENCE
