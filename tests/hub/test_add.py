"""`zoo add` drafts entries from what the Hub says and from checkpoints on this machine, and never spoils a list."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from fault_table import FILES, entry
from hub_server import Fault
from typer.testing import CliRunner

from harness.cases import Phase, Weights
from harness.cli import drafting, made_lists
from harness.cli.app import app
from harness.derived import derived_path
from model_lists import ListError, load_list, write_list

CONFIG = {"model_type": "bert", "architectures": ["BertModel"]}
REPOSITORY = FILES | {"config.json": json.dumps(CONFIG).encode()}
SAID = {
    "pipeline_tag": "feature-extraction",
    "library_name": "transformers",
    "safetensors": {"parameters": {"F32": 10, "BF16": 100}, "total": 110},
    "gated": "manual",
}


@pytest.fixture
def add(hub, tmp_path, monkeypatch):
    """`zoo add` with a Hub on loopback; what it ended with."""
    derived = derived_path(tmp_path / "cache")
    derived.parent.mkdir(parents=True)
    write_list(derived, [entry("google-bert/bert-base-uncased", Weights.SYNTHETIC)])
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.chdir(tmp_path)

    def added(*arguments):
        from harness.cli import main

        with pytest.raises(SystemExit) as ended:
            main(["add", *map(str, arguments), "--cache", str(tmp_path / "cache")])
        return ended.value.code or 0

    return added


def test_what_the_hub_says_becomes_an_entry_at_its_commit(hub, add, tmp_path, capsys):
    made = hub.add("acme/alpha", REPOSITORY, **SAID)
    assert add("acme/alpha", "--to", "mine.csv", "--tier", "weekly") == 0
    (drafted,) = load_list(tmp_path / "mine.csv")
    assert (drafted.model_id, drafted.revision, drafted.model_class) == ("acme/alpha", made.commit, "BertModel")
    assert (drafted.task, drafted.params, drafted.tier) == ("feature-extraction", 110, "weekly")
    assert drafted.dtype == "bfloat16"
    assert (drafted.gated, drafted.custom_code, drafted.weights) == ("yes", "no", Weights.SYNTHETIC)
    assert capsys.readouterr().out == (tmp_path / "mine.csv").read_text().splitlines(keepends=True)[1]
    assert hub.requests["acme/alpha"] <= 3
    shown = CliRunner().invoke(app, ["show", "acme/alpha", "--list", "mine.csv", "--cache", str(tmp_path / "cache")])
    assert f"its own config: here, at {made.commit}" in shown.output


def test_a_model_with_code_of_its_own_is_drafted_without_trust(hub, add, tmp_path):
    code = {"AutoConfig": "configuration_neat.NeatConfig", "AutoModelForCausalLM": "modeling_neat.NeatForCausalLM"}
    config = {"model_type": "neat", "architectures": ["NeatForCausalLM"], "auto_map": code}
    hub.add("acme/neat", FILES | {"config.json": json.dumps(config).encode()})
    assert add("acme/neat", "--to", "mine.csv") == 0
    (drafted,) = load_list(tmp_path / "mine.csv")
    assert (drafted.model_type, drafted.model_class, drafted.weights) == ("neat", "NeatForCausalLM", Weights.HUB)
    assert (drafted.custom_code, drafted.trusted) == ("yes", "")
    shown = CliRunner().invoke(app, ["show", "acme/neat", "--list", "mine.csv", "--cache", str(tmp_path / "cache")])
    assert re.search(r"^trusted +no commit *$", shown.output, re.MULTILINE), shown.output


def test_without_a_list_the_line_is_printed_and_nothing_is_written(hub, add, tmp_path, capsys):
    hub.add("acme/alpha", REPOSITORY)
    assert add("acme/alpha", "--weights", "hub") == 0
    assert capsys.readouterr().out.startswith("acme/alpha,")
    assert list(tmp_path.glob("*.csv")) == []


def test_a_list_keeps_every_byte_and_takes_no_model_twice(hub, add, tmp_path, capsys):
    for name in ("alpha", "beta"):
        hub.add(f"acme/{name}", REPOSITORY)
    mine = tmp_path / "mine.csv"
    write_list(mine, [entry("acme/gamma", Weights.SYNTHETIC)])
    before = mine.read_bytes().replace(b"\n", b"\r\n")[:-2]
    mine.write_bytes(before)
    assert add("acme/alpha", "--to", mine) == 0
    after = mine.read_bytes()
    assert after.startswith(before)
    assert [one.model_id for one in load_list(mine)] == ["acme/gamma", "acme/alpha"]
    capsys.readouterr()
    assert add("acme/alpha", "--to", mine) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "mine.csv:3: it has bert/BertModel/acme/alpha/synthetic already; nothing was added" in said
    assert add("acme/beta", "--to", mine, "--tier", "nightyl") == 2
    assert "acme/beta: tier is 'nightyl'; did you mean nightly?" in capsys.readouterr().err
    assert mine.read_bytes() == after
    mine.write_text("no,list\n1,2\n")
    assert add("acme/beta", "--to", mine) == 2
    assert mine.read_text() == "no,list\n1,2\n"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "bert"}, "does not say its model_type and architectures"),
        ({"model_type": "bert", "architectures": ["BertModle"]}, "did you mean BertModel?"),
        (["bert"], "holds no config"),
        (None, "GONE: "),
    ],
)
def test_what_cannot_be_drafted_is_one_line(hub, add, capsys, config, said):
    files = {name: content for name, content in FILES.items() if name != "config.json"}
    hub.add("acme/odd", files | ({"config.json": json.dumps(config).encode()} if config is not None else {}))
    assert add("acme/odd") == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_the_hubs_refusals_have_their_verdicts_and_new_names_are_told(hub, add, capsys):
    hub.add("acme/gated", REPOSITORY, Fault("status", status=401, code="GatedRepo"))
    hub.add("acme/new", REPOSITORY)
    hub.add("acme/old", REPOSITORY, Fault("move", to="acme/new"))
    assert add("acme/gated") == 2
    assert capsys.readouterr().err.startswith("ERROR: GATED: ")
    assert add("acme/old") == 0
    told = capsys.readouterr()
    assert told.out.startswith("acme/new,")
    assert "acme/old is acme/new today" in told.err


def test_a_folder_is_drafted_with_its_real_weights_and_a_path_from_its_list(add, tmp_path):
    folder = tmp_path / "my checkpoint!"
    folder.mkdir()
    for name, content in REPOSITORY.items():
        (folder / name).write_bytes(content)
    (tmp_path / "lists").mkdir()
    assert add(folder, "--to", tmp_path / "lists" / "mine.csv") == 0
    assert "../my checkpoint!/config.json" in (tmp_path / "lists" / "mine.csv").read_text()
    (drafted,) = load_list(tmp_path / "lists" / "mine.csv")
    assert (drafted.model_id, drafted.weights, drafted.params) == ("mycheckpoint", Weights.HUB, 5000)
    assert drafted.dtype == "float32", "of its weights, as its config says nothing"
    assert drafted.config == str(folder / "config.json")
    assert add(folder, "--weights", "hub") == 2
    shown = CliRunner().invoke(app, ["show", str(folder), "--cache", str(tmp_path / "cache")])
    assert shown.exit_code == 0, shown.output
    command = shlex.split(shown.output.splitlines()[-2])
    assert command[-2] == "--list"
    assert load_list(command[-1])[0].config == drafted.config, "what shows a folder also says how to run it again"


def test_a_gguf_file_is_a_model_of_its_own(add, tmp_path, monkeypatch):
    (tmp_path / "small.Q8_0.gguf").touch()
    said = {"model_type": "bert", "architectures": ["BertModel"], "params": 7, "dtype": "float16"}
    monkeypatch.setattr(drafting, "printed_by", lambda *_, **__: json.dumps(said))
    (path,) = made_lists.of_checkpoints([str(tmp_path)], tmp_path / "cache")
    (made,) = load_list(path)
    assert (made.id, made.params, made.dtype) == ("bert/BertModel/small.Q8_0/hub", 7, "float16")
    assert (made.config, made.phases) == (str(tmp_path / "small.Q8_0.gguf"), (Phase.FORWARD,))


def test_links_lead_no_list_away_from_the_weights(add, tmp_path):
    stored = tmp_path / "blobs"
    stored.mkdir()
    folder = tmp_path / "snapshot-1.5"
    folder.mkdir()
    for name, content in REPOSITORY.items():
        (stored / name).write_bytes(content)
        (folder / name).symlink_to(stored / name)
    (path,) = made_lists.of_checkpoints([f"{folder}/."], tmp_path / "cache")
    (made,) = load_list(path)
    assert (made.model_id, made.config) == ("snapshot-1.5", str(folder / "config.json"))
    with pytest.raises(ListError, match=r"neither config\.json with safetensors nor a GGUF file"):
        made_lists.of_checkpoints([str(tmp_path)], tmp_path / "cache")
