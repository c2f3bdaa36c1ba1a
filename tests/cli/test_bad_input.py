"""Whatever the user gets wrong: one clear line on stderr, exit code 2, nothing started."""

from __future__ import annotations

import pytest

ALPHA = "alpha/AlphaModel/acme/alpha/synthetic"
RUN = ("run", "--list", "models.csv", "--target", "cpu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rerun", "bta", "--list", "models.csv", "--target", "cpu"), "did you mean beta"),
        (("rerun", "BetaForCausalLm", "--list", "models.csv", "--target", "cpu"), "did you mean BetaForCausalLM"),
        (("rerun", "gamma-one", "--list", "models.csv", "--target", "cpu"), "did you mean acme/gamma-one"),
        (("rerun", "nothing/like*it", "--list", "models.csv", "--target", "cpu"), "no model matches"),
        (("show", "bta", "--list", "models.csv"), "did you mean beta"),
        (("list", "--list", "models.csv", "--family", "vison"), "did you mean vision"),
        ((*RUN, "--tier", "smok"), "did you mean smoke"),
        ((*RUN, "--mode", "compield"), "did you mean compiled"),
        ((*RUN, "--mode", "defer-and-fuse"), "valid: eager, compiled"),
        ((*RUN, "--dtype", "fp32"), "valid: float32, bfloat16, float16"),
        ((*RUN, "--profile", "wide"), "valid: padded, single"),
        ((*RUN, "--phase", "backward"), "valid: forward, generate, train"),
        ((*RUN, "--phase", "train", "-k", "alpha"), "none of the 1 chosen models has the phase train"),
        ((*RUN, "-k", "acme/gamma-one/synthetic/train/eager/float32/padded"), "no model matches"),
        ((*RUN, "-k", ALPHA + "/train/eager/float32/padded"), "AlphaModel has no phase train"),
        (("run", "--list", "models.csv", "--target", "cup"), "did you mean 'cpu'"),
        (("run", "--list", "absent.csv", "--target", "cpu"), "absent.csv"),
        (("run", "--list", "smoek", "--target", "cpu"), "valid: "),
        ((*RUN, "--resume", "20260101"), "no runs yet"),
        ((*RUN, "--store", "models.csv/inside"), "cannot write the results store"),
    ],
)
def test_one_line_and_exit_2(zoo, models, tmp_path, arguments, said):
    ended = zoo(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert ended.err.startswith("ERROR: ")
    assert not ended.out
    assert not list(tmp_path.glob("store/runs/*"))


def test_a_malformed_list_is_named_with_its_line(zoo, models):
    models.write_text(models.read_text().replace("decoder-dense", "decoder-dens"))
    ended = zoo(*RUN)
    assert ended.code == 2
    assert "models.csv:3: " in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"model_id\n", b"a,b\n1,2\n"])
def test_a_list_that_is_none(zoo, models, content):
    models.write_bytes(content)
    ended = zoo(*RUN)
    assert ended.code == 2
    assert "models.csv" in ended.err
    assert "Traceback" not in ended.err


def test_a_target_that_is_not_there(zoo, models):
    ended = zoo(*RUN, script={"target": "unavailable"})
    assert ended.code == 2
    assert "ERROR: no device here; plug one in" in ended.err
    assert "Traceback" not in ended.both


def test_a_broken_expectations_file(zoo, models, tmp_path):
    (tmp_path / "cpu.toml").write_text('[[expect]]\ncase = "*"\nverdict = "FLAKEY"\nreason = "x"\nadded = 2026-01-31\n')
    ended = zoo(*RUN, "--expectations", tmp_path)
    assert ended.code == 2
    assert "cpu.toml:3: unknown verdict: 'FLAKEY'; did you mean FLAKY? (valid: " in ended.err


def test_an_unknown_option_is_a_usage_error(zoo):
    ended = zoo("run", "--tiers", "smoke")
    assert ended.code == 2
    assert "--tiers" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fault", "junk"), "'junk' is not of the form MODULE:NAME"),
        (("--fault", "json:"), "'json:' is not of the form MODULE:NAME"),
        (("--fault", "no_such_module:x"), "there is no module no_such_module"),
        (("--fault", "no.such.module:x"), "there is no module no.such.module"),
        (("--fault", "json:dmps"), "json has no dmps; did you mean dumps?"),
        (("--expectations", "no_folder"), "no_folder"),
    ],
)
def test_a_fault_that_is_none_and_a_folder_of_expectations_that_is_none(zoo, models, arguments, said):
    ended = zoo(*RUN, *arguments)
    assert ended.code == 2
    assert ended.err.startswith("ERROR: ")
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert "Traceback" not in ended.both


def test_resuming_a_complete_run_still_says_what_was_unexpected(zoo, models):
    assert zoo(*RUN, script={"beta/*": "RUN_ERROR"}).code == 1
    ended = zoo("run", "--list", models, "--resume", "latest")
    assert ended.code == 1
    assert "unexpected" in ended.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "brt"), "did you mean bert"),
        (("vti",), "did you mean vit"),
        (("--tier", "smok"), "did you mean smoke"),
        (("bert", "--only", "bert"), "--only chooses of what is registered"),
        (("vit", "--out", "no/such/folder/rows.csv"), "cannot write no/such/folder/rows.csv"),
    ],
)
def test_liveness_of_nothing(zoo, arguments, said):
    ended = zoo("liveness", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert not ended.out
