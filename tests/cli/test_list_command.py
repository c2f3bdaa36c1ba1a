"""`zoo list` filters, counts, and knows how models fared; planning says what it does not attempt."""

from __future__ import annotations

import pytest

FLUX = "acme/flux,,diffusers,FluxPipeline,FluxPipeline,diffusion,,,full,synthetic,,"


@pytest.fixture
def with_flux(models):
    models.write_text(f"{models.read_text()}{FLUX}\n", encoding="utf-8")
    return models


def listed(ended) -> list[str]:
    assert ended.code == 0, ended.both
    return [line.split("\t")[2] for line in ended.out.splitlines()]


def test_filters_narrow_and_the_number_comes_last(zoo, with_flux):
    every = zoo("list", "--list", with_flux)
    assert listed(every) == ["acme/alpha", "acme/beta", "acme/gamma-one", "acme/flux"]
    assert every.err == "4 models of 4 architectures (2 smoke, 1 nightly, 1 full)\n"
    for asked, named in (
        (("--arch", "beta"), ["acme/beta"]),
        (("--library", "diffusers"), ["acme/flux"]),
        (("--tier", "nightly", "--gated", "unknown"), ["acme/alpha", "acme/beta", "acme/gamma-one"]),
        (("--tier", "nightly", "--task", "fill-mask"), ["acme/alpha"]),
    ):
        assert listed(zoo("list", "--list", with_flux, *asked)) == named, asked
    wrong = zoo("list", "--list", with_flux, "--arch", "bta")
    assert (wrong.code, "did you mean beta?" in wrong.err) == (2, True)


def test_a_status_is_of_the_last_results_on_the_target(zoo, with_flux, night):
    alpha, beta, gamma = (
        f"{entry}/synthetic/forward/{{}}/float32/padded"
        for entry in (
            "alpha/AlphaModel/acme/alpha",
            "beta/BetaForCausalLM/acme/beta",
            "gamma/GammaModel/acme/gamma-one",
        )
    )
    bad, busy = {"verdict": "RUN_ERROR"}, {"verdict": "DEVICE_BUSY"}
    good = {alpha.format("eager"): {}, beta.format("eager"): {}}
    night(good | {beta.format("compiled"): bad, gamma.format("eager"): busy})
    night({alpha.format("compiled"): bad}, target="elsewhere")
    for status, named in (
        ("failing", ["acme/beta"]),
        ("passing", ["acme/alpha"]),
        ("unknown", ["acme/gamma-one", "acme/flux"]),
    ):
        found = zoo("list", "--list", with_flux, "--target", "cpu", "--status", status)
        assert listed(found) == named
        assert all(line.endswith(f"\t{status}") for line in found.out.splitlines())


def test_a_library_that_nothing_here_runs_is_said_and_not_attempted(zoo, with_flux):
    planned = zoo("plan", "--list", with_flux, "--target", "cpu")
    assert "3 models, and 1 not attempted, 6 cases on cpu" in planned.out
    assert "6 unique jobs predicted" in planned.out
    assert "unknown" in planned.out
    assert "NOT ATTEMPTED: 1 diffusers models" in planned.err
    alone = zoo("run", "--list", with_flux, "--target", "cpu", "--select", "acme/flux")
    assert (alone.code, "nothing here runs 'acme/flux' yet" in alone.err) == (2, True)
