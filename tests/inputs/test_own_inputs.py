"""Real weights are fed what their own tokenizer, image processor or feature extractor makes, where they bring one."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast

from harness.cases import Given, Phase, Profile, Weights
from harness.inputs import InputError, digest, made
from harness.inputs.own import OTHER_QUESTION, QUESTIONS, picture, sound
from harness.inputs.request import CodeNotTrusted, DependencyMissing
from harness.models.reduce import reduced_config
from model_lists import load_list
from model_lists.recipes import load_recipe

ENTRIES = {entry.model_type: entry for entry in load_list("smoke") if entry.weights == "synthetic"}
NAMES = ["input_ids", "token_type_ids", "attention_mask"]
WORDS = ["[PAD]", "[UNK]", "[END]", "[CLS]", "the", "lighthouse", "rain", "is", "expected", ".", "he", "count"]


def tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """A tokenizer of a few whole words."""
    known = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    known.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [END]", pair="[CLS] $A [END] $B:1 [END]:1", special_tokens=[("[CLS]", 3), ("[END]", 2)]
    )
    special |= {"eos_token": "[END]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=known, model_input_names=NAMES, **special)


def fed(folder, model_type, model_class, phase=Phase.FORWARD, profile=Profile.PADDED, **changes):
    config = reduced_config(CONFIG_MAPPING[model_type], load_recipe(model_type))
    for name, value in changes.items():
        setattr(config, name, value)
    one = dataclasses.replace(ENTRIES["bert"], model_type=model_type, model_class=model_class, weights=Weights.HUB)
    return made(one, config, folder, profile, 0, phase)


def test_texts_are_padded_behind_where_a_model_reads_and_before_where_it_goes_on(tmp_path):
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    given, read = fed(tmp_path, "bert", "BertModel")
    assert given is Given.TOKENIZER
    assert (read["input_ids"][0, 0].item(), read["attention_mask"][1, -1].item()) == (3, 0)
    assert set(read) == {"input_ids", "attention_mask", "token_type_ids"}
    _, written = fed(tmp_path, "llama", "LlamaForCausalLM")
    assert (written["attention_mask"][1, 0].item(), written["input_ids"][1, 0].item()) == (0, 0)
    assert "token_type_ids" not in written
    assert fed(tmp_path, "bert", "BertModel", profile=Profile.SINGLE)[1]["input_ids"].shape[0] == 1


def test_one_without_padding_pads_with_its_end(tmp_path):
    tokenizer().save_pretrained(tmp_path)
    _, inputs = fed(tmp_path, "gpt2", "GPT2LMHeadModel")
    assert (inputs["attention_mask"][1, 0].item(), inputs["input_ids"][1, 0].item()) == (0, 2)


def test_one_to_talk_with_is_asked_in_its_own_way(tmp_path):
    words = tokenizer(pad_token="[PAD]")
    words.chat_template = (
        "{% for one in messages %}count {{ one.content }}{% endfor %} {{ 'he' * add_generation_prompt }}"
    )
    words.save_pretrained(tmp_path)
    _, inputs = fed(tmp_path, "llama", "LlamaForCausalLM", Phase.GENERATE, Profile.SINGLE)
    assert words.decode(inputs["input_ids"][0]).split()[0] == "count"
    assert words.decode(inputs["input_ids"][0]).split()[-1] == "he"
    assert len(QUESTIONS) == 2
    assert OTHER_QUESTION not in QUESTIONS
    _, body = fed(tmp_path, "llama", "LlamaModel")
    assert words.decode(body["input_ids"][0]).split()[0] == "[CLS]", "a body alone is not talked with"


def test_a_decoder_beside_an_encoder_is_given_an_answer_and_starts_by_itself(tmp_path):
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    _, inputs = fed(tmp_path, "t5", "T5ForConditionalGeneration", decoder_start_token_id=0)
    ids, mask = inputs["decoder_input_ids"], inputs["decoder_attention_mask"]
    assert ids.shape == mask.shape
    assert (ids[:, 0] == 0).all()
    assert mask[1, -1] == 0
    assert "decoder_input_ids" not in fed(tmp_path, "t5", "T5ForConditionalGeneration", Phase.GENERATE)[1]
    _, trained = fed(tmp_path, "t5", "T5ForConditionalGeneration", Phase.TRAIN)
    assert "labels" in trained


def test_a_tokenizer_of_its_own_code_is_not_run(tmp_path):
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mine"}')
    said = tmp_path / "tokenizer_config.json"
    own = {"tokenizer_class": "MineTokenizer", "auto_map": {"AutoTokenizer": ["mine.MineTokenizer", None]}}
    said.write_text(json.dumps(json.loads(said.read_text()) | own))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(CodeNotTrusted, match="needs code of its repository"):
        fed(tmp_path, "gpt2", "GPT2LMHeadModel")
    assert not (tmp_path / "ran").exists()


def test_questions_come_with_what_they_are_about(tmp_path):
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    _, inputs = fed(tmp_path, "bert", "BertForQuestionAnswering")
    assert set(inputs["token_type_ids"].unique().tolist()) == {0, 1}


def test_pictures_go_through_the_image_processor(tmp_path):
    processor = transformers.ViTImageProcessor(size={"height": 30, "width": 30})
    processor.save_pretrained(tmp_path)
    given, inputs = fed(tmp_path, "vit", "ViTModel")
    assert given is Given.PROCESSOR
    assert inputs["pixel_values"].shape == (2, 3, 30, 30)
    assert not torch.equal(inputs["pixel_values"][0], inputs["pixel_values"][1])
    again = fed(tmp_path, "vit", "ViTModel")[1]
    assert digest(inputs) == digest(again)
    assert fed(tmp_path, "vit", "ViTModel", profile=Profile.SINGLE)[1]["pixel_values"].shape[0] == 1
    assert picture(0).size != picture(1).size


def test_pictures_and_texts_together_go_through_the_processor(tmp_path):
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    transformers.CLIPProcessor(images, tokenizer(pad_token="[PAD]")).save_pretrained(tmp_path)
    given, inputs = fed(tmp_path, "clip", "CLIPModel")
    assert given is Given.PROCESSOR
    assert set(inputs) >= {"input_ids", "attention_mask", "pixel_values"}
    assert inputs["pixel_values"].shape == (2, 3, 32, 32)
    assert inputs["input_ids"].shape[0] == 2


def test_one_to_talk_with_about_pictures_is_asked_about_one_in_each_row(tmp_path):
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    words = tokenizer(pad_token="[PAD]", extra_special_tokens={"image_token": "<image>"})
    template = (
        "{% for turn in messages %}{% for part in turn.content %}"
        "{{ '<image>' if part.type == 'image' else ' ' + part.text }}{% endfor %}{% endfor %}"
    )
    processor = transformers.LlavaProcessor(
        images, words, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=template,
    )  # fmt: skip
    processor.save_pretrained(tmp_path)
    given, inputs = fed(tmp_path, "llava", "LlavaForConditionalGeneration", image_token_index=len(WORDS))
    assert given is Given.PROCESSOR
    assert inputs["pixel_values"].shape == (2, 3, 32, 32)
    assert (inputs["input_ids"] == words.convert_tokens_to_ids("<image>")).sum(1).tolist() == [16, 16]
    assert inputs["attention_mask"].sum(1).unique().numel() == 2, "questions of two lengths"


def test_sounds_go_through_the_feature_extractor(tmp_path):
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(tmp_path)
    given, inputs = fed(tmp_path, "wav2vec2", "Wav2Vec2Model")
    assert given is Given.PROCESSOR
    assert inputs["input_values"].shape == (2, 24_000)
    assert inputs["attention_mask"].sum(dim=1).tolist() == [24_000, 16_000]
    assert abs(sound(0, 16_000)).max() <= 1


def test_what_brings_nothing_that_serves_it_is_drawn(tmp_path):
    assert fed(tmp_path, "bert", "BertModel")[0] is Given.DRAWN
    tokenizer(pad_token="[PAD]").save_pretrained(tmp_path)
    assert fed(tmp_path, "vit", "ViTModel")[0] is Given.DRAWN
    assert fed(tmp_path, "bert", "BertForMultipleChoice")[0] is Given.DRAWN
    config = reduced_config(CONFIG_MAPPING["bert"], load_recipe("bert"))
    assert made(ENTRIES["bert"], config, tmp_path, Profile.PADDED, 0)[0] is Given.DRAWN, "synthetic"


def test_a_tokenizer_that_fails_is_said_to_and_not_passed_over(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(InputError, match="its own tokenizer or processor fails"):
        fed(tmp_path, "bert", "BertModel")


def test_a_tokenizer_that_needs_a_package_says_which(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SpeechT5Tokenizer"}')
    (tmp_path / "spm_char.model").write_bytes(b"")
    with pytest.raises(DependencyMissing, match=r"(?i)sentencepiece"):
        fed(tmp_path, "bert", "BertModel")
