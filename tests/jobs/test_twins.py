"""Entries that are the same job byte for byte run once, and each has its own row with its own evidence."""

import dataclasses
import json

import pytest

from harness.cases import Case, Dtype, Evidence, Mode, Phase, Profile, Verdict, Weights
from harness.jobs import JobRunner
from harness.jobs.cache import checkpoint_folder, reference_folder
from harness.jobs.twins import structure
from harness.targets import resolve
from model_lists import load_list

VIT = next(entry for entry in load_list("smoke") if entry.model_type == "vit")


def case(entry, mode=Mode.EAGER, profile=Profile.PADDED):
    return Case(entry, Phase.FORWARD, mode, Dtype.FLOAT32, profile)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    with JobRunner(resolve("cpu"), tmp_path_factory.mktemp("cache")) as runner:
        yield runner


def test_a_twin_is_reported_without_running_again(runner):
    first = runner.run(case(VIT))
    twin = runner.run(case(dataclasses.replace(VIT, model_id="someone/fine-tuned-vit")))
    assert (first.verdict, first.twin_of) == (Verdict.PASS, "")
    assert (twin.verdict, twin.twin_of) == (Verdict.PASS, first.case.id)
    assert twin.case.entry.model_id == "someone/fine-tuned-vit"
    assert twin.evidence is Evidence.ARCHITECTURE_DEFAULT
    assert twin.worst == first.worst
    assert not {"build", "reference", "to-device", "run", "compare"} & set(twin.seconds)
    assert twin.cpu_seconds is None


def test_twins_share_their_files_and_others_do_not(tmp_path):
    def folders(entry):
        return checkpoint_folder(tmp_path, entry, 0), reference_folder(tmp_path, case(entry), 0)

    named = dataclasses.replace(VIT, model_id="someone/fine-tuned-vit", revision="1" * 40, tier="full", params=7)
    assert folders(named) == folders(VIT)
    others = [{"model_class": "ViTModel"}, {"model_type": "deit"}, {"weights": Weights.HUB}]
    apart = [folders(dataclasses.replace(VIT, **other)) for other in others]
    assert len({*apart, folders(VIT)}) == len(others) + 1


def test_the_same_case_is_never_its_own_twin(runner):
    assert [runner.run(case(VIT)).twin_of for _ in range(2)] == ["", ""]


@pytest.mark.parametrize(
    "other",
    [
        case(dataclasses.replace(VIT, model_class="ViTModel", model_id="a/b")),
        case(dataclasses.replace(VIT, model_id="a/b"), profile=Profile.SINGLE),
        case(dataclasses.replace(VIT, model_id="a/b"), mode=Mode.COMPILED),
    ],
)
def test_another_class_input_or_mode_is_another_job(runner, other):
    runner.run(case(VIT))
    assert runner.run(other).twin_of == ""


def test_a_broken_backend_is_not_hidden_by_a_twin_that_ran_on_a_sound_one(runner):
    runner.run(case(VIT))
    runner.processes.fault = "no_such_module:fault"
    record = runner.run(case(dataclasses.replace(VIT, model_id="c/d")))
    runner.processes.fault = ""
    assert record.verdict is Verdict.HARNESS_ERROR


def test_names_in_a_config_make_no_difference_and_sizes_do(tmp_path):
    def of(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return structure("ViTModel", tmp_path, "w", "i")

    assert of(size=4, id2label={"0": "cat"}) == of(size=4, id2label={"0": "dog"}, _name_or_path="x")
    assert of(size=4) != of(size=5)
    assert of(part={"size": 4}) != of(part={"size": 5})
