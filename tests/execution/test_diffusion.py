"""The noise schedule that a user hands to models that draw sounds out of noise."""

from __future__ import annotations

import torch

from harness.execution.diffusion import CosineSchedule, opened


def test_a_network_that_knows_the_answer_is_led_to_it_from_pure_noise():
    schedule = CosineSchedule(1000)
    schedule.set_timesteps(num_inference_steps=10)
    assert schedule.timesteps.tolist() == list(range(999, 0, -100))
    torch.manual_seed(0)
    sought, sample = torch.randn(2, 8, dtype=torch.float64), torch.randn(2, 8, dtype=torch.float64)
    for time in schedule.timesteps:
        signal, noise = schedule._shares(int(time))
        present = (sample - signal * sought) / noise
        sample = schedule.step(signal * present - noise * sought, time, sample).prev_sample
    torch.testing.assert_close(sample, sought)


def test_every_run_has_a_schedule_of_its_own():
    inputs = {"input_ids": torch.ones(1, 2, dtype=torch.long), "noise_scheduler": {"train_steps": 50}}
    first, second = (opened(inputs)["noise_scheduler"] for _ in range(2))
    assert first is not second
    assert first.train_steps == 50
    assert opened({"input_ids": inputs["input_ids"]}).keys() == {"input_ids"}
