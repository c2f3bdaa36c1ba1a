"""The files that show a failure: what they are given, what they say, and how they are made smaller."""

import pytest
import torch
import transformers

from harness.cases import Mode, Phase
from harness.targets.base import Standalone
from harness.targets.cpu import Cpu
from harness.triage import minimise, repro
from harness.triage.calls import Call, Given
from harness.triage.repro import DIES, RAISES, WRONG, Repro, Subject


class Twin(Cpu):
    """The CPU under another name of its device, so that a function can tell the two sides apart."""

    device_type = "cpu:0"


def made(function, kind, *tensors, args=({"tensor": 0},), **more):
    call = Call(function, tensors, args, **more)
    return Repro("a title", "a fact", Standalone("import torch\n", ""), repro.of_call(call, kind, Twin(), Mode.EAGER))


def said(one):
    """What a file says at its end, run in this process."""
    try:
        exec(compile(one.text, "<repro>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code
    return ""


FLOATS = Given((2, 3), "float32", -1.0, 2.0)


@pytest.mark.parametrize(
    ("function", "kind", "says"),
    [
        ("torch.sin", WRONG, ""),
        ("(lambda x: x.sin() * (1 + 1e-4 * (device == 'cpu:0')))", WRONG, "wrong: result 0: error"),
        ("(lambda x: x.sin() / (device != 'cpu:0'))", WRONG, "wrong: result 0: another dtype or shape"),
        ("(lambda x: torch.cat([x.sin(), x * 0 - 1e9]) + 0.01 * (device == 'cpu:0'))", WRONG, "wrong: result 0: error"),
        ("(lambda x: (x, (x > 0) != (device == 'cpu:0')))", WRONG, ""),  # of values beside it only the first is judged
        ("(lambda x: (x > 0) != (device == 'cpu:0'))", WRONG, "wrong: result 0: error 1"),
        ("(lambda x: x.view(5 if device == 'cpu:0' else 6))", RAISES, "raises RuntimeError: shape '[5]' is invalid"),
        ("torch.sin", RAISES, ""),
        ("(lambda x: os._exit(3) if device == 'cpu:0' else x)", DIES, "dies: exit status 3"),
        ("torch.sin", DIES, ""),
    ],
)
def test_a_file_says_what_it_sees(function, kind, says):
    found = said(made(function, kind, FLOATS))
    assert found.startswith(says) if says else found == ""


def test_what_the_cpu_cannot_do_either_shows_nothing():
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        said(made("(lambda x: x.view(5))", RAISES, FLOATS))


def test_what_a_call_writes_into_is_a_result():
    wrong = "(lambda x: x.add_(1e-3 * (device == 'cpu:0')).sum() * 0)"
    assert said(made(wrong, WRONG, FLOATS)) == ""
    assert said(made(wrong, WRONG, FLOATS, written=(0,))).startswith("wrong: result 1")


def test_of_a_choice_the_chosen_values_are_compared():
    ties = Given((4,), "float32", 1.0, 1.0, few=(1.0,), share=1.0)
    assert said(made("torch.ops.aten.argmax.default", WRONG, ties, args=({"tensor": 0}, 0))) == ""


def test_hostile_words_stay_in_the_first_lines():
    end = '"""\nraise SystemExit("mischief")\n\\'
    body = repro.of_call(Call("torch.sin", (FLOATS,), ({"tensor": 0},)), WRONG, Twin(), Mode.EAGER)
    assert said(Repro(end, end, Standalone("import torch\n", ""), body)) == ""


def test_many_zeros_are_drawn_as_many():
    torch.manual_seed(0)
    x = eval(Given((1000,), "float32", 0.0, 1.0, zeros=0.5).source(literal=False))
    assert 400 < (x == 0).sum() < 600


@pytest.mark.parametrize(
    "given",
    [
        FLOATS,
        Given((2, 3), "bfloat16", 0.5, 4.0, order=(1, 0)),
        Given((5,), "int64", 0, 6),
        Given((2, 4), "bool", 0, 1, few=(False, True), share=0.5),
        Given((2, 4), "float32", -1e9, 0.0, few=(-1e9, 0.0), share=0.25),
        Given((3,), "float32", 0.0, 0.0, few=(float("-inf"),), share=1.0),
        Given((), "float32", -1.0, 1.0),
        Given((0, 3), "float32", 0, 0),
    ],
)
def test_a_tensor_is_drawn_as_it_was(given):
    torch.manual_seed(0)
    x = eval(given.source(literal=False))
    assert (tuple(x.shape), x.dtype) == (given.shape, getattr(torch, given.dtype))
    order = given.order or tuple(range(x.dim()))
    assert sorted(range(x.dim()), key=lambda n: -x.stride(n)) == list(order) or x.numel() < 2
    finite = x[x.isfinite()].float()
    assert not finite.numel() or (given.low - 1e-2 <= finite.min() and finite.max() <= given.high + 1e-2)


def test_a_tensor_is_written_down_with_its_memory_and_cut_to_its_first_elements():
    given = Given((2, 3), "int64", 0, 5, order=(1, 0), values=(0, 1, 2, 3, 4, 5))
    x = eval(given.source(literal=True))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.stride() == (1, 2)
    assert eval(given.resized((2, 2)).source(literal=True)).tolist() == [[0, 1], [3, 4]]


def test_a_call_is_made_as_small_as_still_fails():
    table = Given((100, 8), "float32", -1, 1)
    picked = Given((2, 7), "int64", 0, 99, values=tuple(range(86, 100)))
    call = Call("f", (table, picked), ({"tensor": 0}, {"tensor": 1}), {"dim": 0, "size": 100, "much": 1.5})
    tried = []

    def fails(one):
        tried.append(one)
        width, length = (tensor.shape[1] for tensor in one.tensors)
        return width >= 4 and length >= 3 and one.kwargs.get("much") == 1.5 and "size" in one.kwargs

    small = minimise.smallest(call, fails)
    assert [one.shape for one in small.tensors] == [(1, 4), (1, 3)]
    assert small.kwargs == {"size": 1, "much": 1.5}, "an argument of the same size goes with it"
    assert small.tensors[1].high == 0, "an index stays inside"
    assert len(tried) < 60


class Odd(torch.nn.Module):
    """A model of which the first of several runs is wrong."""

    config_class = transformers.PreTrainedConfig
    wrong_by, ran = 0.0, 0

    def __init__(self, config):
        super().__init__()
        self.layer = torch.nn.Linear(config.width, 1)

    @classmethod
    def _from_config(cls, config):
        cls.ran = 0
        return cls(config)

    def tie_weights(self):
        pass

    def forward(self, x, mask=None):
        Odd.ran += 1
        y = self.layer(x) * (1 + self.wrong_by * (Odd.ran == 1))
        return transformers.utils.ModelOutput(loss=y.mean(), cache=[y, {"mask": mask}])


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.TRAIN])
@pytest.mark.parametrize(("wrong_by", "says"), [(0.0, ""), (0.01, "wrong: result 0: error")])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_a_file_makes_a_model_and_compares_what_it_returns(monkeypatch, phase, wrong_by, says, spread):
    monkeypatch.setattr(transformers, "Odd", Odd, raising=False)
    monkeypatch.setattr(Odd, "wrong_by", wrong_by)
    monkeypatch.setattr(Odd, "num_parameters", lambda self: 5, raising=False)
    mask = Given((3,), "bool", 0, 1, few=(False, True), share=0.5)
    inputs = Call("", (Given((3, 4), "float32", -1, 1), mask), (), {"x": {"tensor": 0}, "mask": {"tensor": 1}})
    subject = Subject("Odd", {"width": 4, "limit": float("inf"), "words": ["a", 'b"']}, inputs, spread)
    body = repro.of_model(subject, WRONG, Twin(), Mode.EAGER, phase, "float32")
    found = said(Repro("a title", "a fact", Standalone("import torch\n", ""), body))
    assert found.startswith(says) if says else found == ""


def test_a_model_is_made_as_small_as_still_fails():
    config = {"num_layers": 12, "width": 64, "act": "gelu", "drop": 0.5, "names": ["a"], "tie": True}
    inputs = Call("", (Given((4, 20), "int64", 0, 9), FLOATS), (), {"ids": {"tensor": 0}, "more": {"tensor": 1}})

    def fails(one):
        return one.config.get("act") == "gelu" and one.config["width"] >= 16 and "ids" in one.inputs.kwargs

    small = minimise.model(Subject("Any", config, inputs), fails)
    assert small.config == {"num_layers": 1, "width": 16, "act": "gelu"}
    assert small.inputs.kwargs == {"ids": {"tensor": 0}}
    assert small.inputs.tensors[0].shape == (1, 1)


def test_nothing_is_tried_when_time_is_up():
    never = minimise.Deadline(lambda one: True, seconds=0)
    call = Call("f", (FLOATS,), ({"tensor": 0},))
    assert minimise.smallest(call, never) == call


@pytest.mark.parametrize("needed", [[], [3], [0, 7], [1, 2, 9], list(range(10))])
def test_fewest_keeps_what_is_needed(needed):
    assert minimise.fewest(list(range(10)), lambda kept: set(needed) <= set(kept)) == needed


def test_a_file_that_would_be_too_long_has_no_empty_lines():
    instead = "def instead(x):\n" + "    x = x + 1\n" * 40 + "    return x"
    assert "\n\n" not in made("torch.sin", WRONG, FLOATS, on_cpu=instead).text
    assert "\n\n" in made("torch.sin", WRONG, FLOATS).text
