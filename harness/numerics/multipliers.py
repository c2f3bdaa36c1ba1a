"""By how many times the CPU's own error a target's may be, for whom imports no torch; why, says `budget`."""

NOISE_MULTIPLIER = 4.0
"""Errors of two correct implementations at one dtype are of one size; their worst elements differ
by a small factor. Over the smoke tier on the emulated TPU, with the floor below, no passing leaf
uses more than two thirds of its allowance, and the median uses an eighth."""

GRADIENT_NOISE_MULTIPLIER = 8.0
"""Over the smoke tier on the emulated TPU the gradients of batch norms use half of it, all others a sixth."""
