"""Generation by given tokens: what a run chooses from is compared, not what it would have chosen."""

from __future__ import annotations

import functools

import pytest
import torch
import transformers
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, Gemma2Config, Gemma2ForCausalLM, LogitsProcessorList
from transformers.modeling_outputs import CausalLMOutput

from harness.cases import Phase
from harness.execution import generation, phases
from harness.execution.generation import CHOOSERS, DECODE_STEPS, Teacher, WrongSteps
from harness.execution.outputs import leaves

WINDOW = 6
SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}


@pytest.fixture(scope="module")
def gemma() -> Gemma2ForCausalLM:
    """A layer that sees a window and one that sees all."""
    torch.manual_seed(0)
    config = Gemma2Config(**SIZES, num_attention_heads=2, num_key_value_heads=1, sliding_window=WINDOW)
    return Gemma2ForCausalLM(config).eval()


PROMPT = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [0, 0, 0, 13, 14, 15, 16, 17]])
INPUTS = {"input_ids": PROMPT, "attention_mask": (PROMPT > 0).long()}


def run(model, teacher, inputs=INPUTS):
    return leaves(phases.run(Phase.GENERATE, model, phases.moved(inputs, "cpu"), 0, teacher=teacher))


def same(a, b):
    assert a.keys() == b.keys()
    for name, leaf in a.items():
        torch.testing.assert_close(leaf, b[name], rtol=1e-4, atol=1e-6)


def counting(lengths):
    """A compiler that changes nothing and notes how many tokens each call of what it compiled gets."""

    def compiler(function):
        @functools.wraps(function)
        def compiled(*args, **kwargs):
            lengths.append(kwargs["input_ids"].shape[1])
            return function(*args, **kwargs)

        return compiled

    return compiler


def test_a_run_by_its_own_tokens_is_the_free_run(gemma):
    free = Teacher()
    first = run(gemma, free)
    assert len(free.tokens) == 1 + DECODE_STEPS
    assert first["sequences"].shape == (2, PROMPT.shape[1] + 1 + DECODE_STEPS)
    assert {f"logits.{step}" for step in range(1 + DECODE_STEPS)} <= set(first)
    assert {"cache.0.keys", "cache.1.values"} <= set(first)
    same(first, run(gemma, Teacher(free.tokens)))
    plain = gemma.generate(**INPUTS, max_new_tokens=9, min_new_tokens=9, do_sample=False)
    assert torch.equal(first["sequences"], plain)


def test_given_tokens_are_taken_whatever_the_logits_say(gemma):
    free = Teacher()
    first = run(gemma, free)
    others = [(tokens + 1) % 64 for tokens in free.tokens]
    second = run(gemma, Teacher(others))
    assert torch.equal(second["sequences"][:, PROMPT.shape[1] :], torch.stack(others, dim=1))
    torch.testing.assert_close(first["logits.0"], second["logits.0"])
    assert not torch.allclose(first["logits.1"], second["logits.1"])


class Even(Gemma2ForCausalLM):
    """May say nothing but even numbers."""

    def _get_logits_processor(self, *args, **kwargs):
        processors = super()._get_logits_processor(*args, **kwargs)
        odd = torch.where(torch.arange(SIZES["vocab_size"]) % 2 == 1, -torch.inf, 0.0)
        processors.append(lambda ids, scores: scores + odd)
        return processors


def test_what_is_written_down_is_what_the_processors_of_a_class_leave():
    torch.manual_seed(0)
    config = Gemma2Config(**SIZES, num_attention_heads=2, num_key_value_heads=1, sliding_window=WINDOW)
    model, free = Even(config).eval(), Teacher()
    first = run(model, free)
    assert {int(token) % 2 for step in free.tokens for token in step} == {0}
    assert torch.stack(free.tokens, dim=1).equal(first["sequences"][:, PROMPT.shape[1] :])
    same(run(model, Teacher(free.tokens)), first)
    assert "_get_logits_processor" not in vars(model)


def test_more_steps_than_tokens_are_an_error(gemma):
    with pytest.raises(WrongSteps, match="a step 3; the reference took 2"):
        run(gemma, Teacher([torch.tensor([2, 2])] * 2))


def test_compiled_steps_are_those_after_the_prefill_and_leave_the_same_cache(gemma):
    free = Teacher()
    eager = run(gemma, free)
    lengths = []
    model = Gemma2ForCausalLM(gemma.config).eval()
    model.load_state_dict(gemma.state_dict())
    generation.compile_steps(model, counting(lengths))
    same(eager, run(model, Teacher(free.tokens)))
    assert lengths == [1] * DECODE_STEPS
    assert eager["cache.0.keys"].shape[2] == WINDOW - 1


def test_the_library_compiles_nothing_by_itself(gemma, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *args, **options: pytest.fail("compiled"))
    run(gemma, Teacher())


def test_a_decoder_starts_by_itself_and_its_encoder_runs_once():
    torch.manual_seed(0)
    sizes = dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_model"), 16)
    layers = dict.fromkeys(
        ("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"), 1
    )
    model = BartForConditionalGeneration(BartConfig(vocab_size=64, **sizes, **layers)).eval()
    runs = []
    model.model.encoder.register_forward_hook(lambda *_: runs.append(1))
    found = run(model, Teacher())
    assert len(runs) == 1
    assert found["sequences"].shape == (2, 1 + 1 + DECODE_STEPS)
    assert {"cache.self.0.keys", "cache.cross.0.keys"} <= set(found)


def test_half_types_are_judged_as_such(gemma):
    model = Gemma2ForCausalLM(gemma.config).eval().bfloat16()
    assert run(model, Teacher())["logits.0"].dtype is torch.bfloat16


def test_tokens_are_forced_row_by_row():
    forced = LogitsProcessorList([Teacher([torch.tensor([2, 0])])])(PROMPT, torch.ones(2, 3))
    assert forced.argmax(-1).tolist() == [2, 0]


def test_where_the_library_does_not_compile_every_step_is_compiled(gemma):
    free = Teacher()
    eager = run(gemma, free)
    lengths = []
    model = Gemma2ForCausalLM(gemma.config).eval()
    model.load_state_dict(gemma.state_dict())
    model._can_compile_fullgraph = False
    generation.compile_steps(model, counting(lengths))
    same(eager, run(model, Teacher(free.tokens)))
    assert lengths == [PROMPT.shape[1]] + [1] * DECODE_STEPS


class Speaker(nn.Module):
    """Says each of its inputs for as long as a part predicts, after one step of a loop; returns no logits."""

    dtype = torch.float32

    def __init__(self, longer: float, answers: type) -> None:
        super().__init__()
        self.lasts = Lasts(longer, answers)

    def generate(self, heard, logits_processor, **asked):
        assert CHOOSERS not in asked
        logits_processor(None, heard[None])
        lasts = self.lasts(heard)
        lasts = lasts if isinstance(lasts, torch.Tensor) else lasts[0]
        return {"said": torch.repeat_interleave(heard, lasts.round().long())}


class Lasts(nn.Module):
    def __init__(self, longer: float, answers: type) -> None:
        super().__init__()
        self.longer, self.answers = longer, answers

    def forward(self, heard):
        made = heard * self.longer
        match self.answers:
            case torch.Tensor:
                return made
            case transformers.utils.ModelOutput:
                return CausalLMOutput(logits=made)
            case _:
                return (made, heard)


@pytest.mark.parametrize("answers", [torch.Tensor, tuple, transformers.utils.ModelOutput])
def test_what_a_chooser_made_is_compared_and_what_the_first_run_made_is_handed_on(answers):
    heard = {"heard": torch.tensor([1.0, 2.0]), CHOOSERS: ["lasts"]}
    free = Teacher()
    first = run(Speaker(1.0, answers), free, heard)
    second = run(Speaker(2.0, answers), Teacher(free.tokens), heard)
    assert first["said"].tolist() == second["said"].tolist() == [1, 2, 2]
    assert first["made.0"].tolist() == [1, 2]
    assert second["made.0"].tolist() == [2, 4]
    assert first["logits.0"].tolist() == second["logits.0"].tolist() == [[1, 2]]
    assert run(Speaker(2.0, answers), Teacher(), heard)["said"].tolist() == [1, 1, 2, 2, 2, 2]


def test_a_chooser_that_makes_another_number_of_choices_is_an_error():
    free = Teacher()
    run(Speaker(1.0, tuple), free, {"heard": torch.tensor([1.0, 2.0]), CHOOSERS: ["lasts"]})
    free.tokens[0] = torch.tensor([0])
    with pytest.raises(WrongSteps, match=r"\(3,\) in a step where the reference's \(2,\)"):
        run(Speaker(1.0, tuple), Teacher(free.tokens), {"heard": torch.ones(3), CHOOSERS: ["lasts"]})


def test_what_is_handed_on_is_no_part_of_a_compiled_program():
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lasts = Lasts(1.0, torch.Tensor)

        def forward(self, heard):
            return self.lasts(heard + 1) * 2

    part, given, programs = Part(), torch.tensor([3.0, 4.0], dtype=torch.float64), []

    def compiler(graph, arguments):
        programs.append([x.dtype for x in arguments if isinstance(x, torch.Tensor)])
        return graph.forward

    part.lasts.register_forward_hook(Teacher([given]).hand_on)
    assert torch.compile(part, backend=compiler)(torch.tensor([1.0, 2.0])).tolist() == [6, 8]
    assert programs
    assert all(torch.float64 not in dtypes for dtypes in programs)
