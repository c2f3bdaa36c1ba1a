"""`zoo lint`: each mistake in a list, or in what belongs to it, is one line that says where and what was meant."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from harness.cases import Verdict
from harness.lint import Linter
from harness.registry import Registry
from model_lists import REQUIRED, load_list
from model_lists.expectations import Expectation

COMMIT = "0123456789" * 4
HEADER = ",".join((*REQUIRED, "gated", "custom_code", "dtype", "trusted"))
ROW = "acme/one,,transformers,bert,BertModel,text-encoder,fill-mask,110,nightly,synthetic,,,no,,,"
REGISTRY = {"bert": frozenset({"BertModel", "BertForMaskedLM"}), "gpt2": frozenset({"GPT2Model"})}


@pytest.fixture
def linter(tmp_path) -> Linter:
    code = tmp_path / "library" / "models" / "bert"
    code.mkdir(parents=True)
    (code / "modeling_bert.py").write_text("class BertPooler:\n    pass\n")
    return Linter(Registry(tmp_path / "library", "5.0", REGISTRY), frozenset({"FluxPipeline"}))


def written(folder: Path, *rows: str, name: str = "mine.csv", header: str = HEADER) -> Path:
    path = folder / name
    path.write_text("\n".join((header, *rows, "")))
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("acme/one", "acme--one", "model_id is 'acme--one'; valid: a Hub id"),
        ("acme/one", "acme/one.git", "model_id is 'acme/one.git'"),
        ("acme/one", "acme/one-", "model_id is 'acme/one-'"),
        ("acme/one", "a/b/c", "model_id is 'a/b/c'"),
        ("acme/one,,", "acme/one,main,", "revision is 'main'; valid: a commit sha"),
        (",110,", ",-3,", "params is '-3'"),
        ("nightly", "nightyl", "tier is 'nightyl'; did you mean nightly?"),
        ("synthetic,,,", "synthetic,,forward trian,", "phases is 'forward trian'; did you mean train?"),
        (",no,,", ",no,,float23", "dtype is 'float23'; did you mean float32?"),
        (",no", ",maybe", "gated is 'maybe'; valid: yes, no, unknown"),
        ("transformers", "diffuser", "library is 'diffuser'; did you mean diffusers?"),
        (",bert,", ",brt,", "transformers 5.0 registers no model_type brt; did you mean bert?"),
        ("BertModel", "BertForMakedLM", "has no class BertForMakedLM; did you mean BertForMaskedLM?"),
        ("BertModel", "GPT2Model", "GPT2Model is registered for other types than bert"),
        ("transformers,bert,BertModel", "diffusers,Flux,FluxPipelin", "exports no FluxPipelin; did you mean FluxPipel"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(linter, tmp_path, old, new, said):
    path = written(tmp_path, ROW.replace("acme/one", "acme/other"), ROW.replace(old, new, 1))
    (finding,) = linter.of_list(path)
    assert finding.startswith(f"{path}:3: ")
    assert said in finding


@pytest.mark.parametrize(
    ("trusted", "revision", "custom_code", "package", "said"),
    [
        (COMMIT, COMMIT, "yes", "", ""),
        (COMMIT, "", "", "", ""),
        (COMMIT[:7], "", "yes", "", "trusted is '0123456'; valid: a full commit sha of 40 hex digits"),
        ("main", "", "yes", "", "trusted is 'main'; valid: a full commit sha"),
        (COMMIT, COMMIT[::-1], "yes", "", "valid: what revision is: the code of another commit never runs"),
        (COMMIT, "", "no", "", "valid: empty where custom_code is no"),
        (COMMIT, "", "yes", "some_package", "valid: empty where a package or a folder has the checkpoint"),
    ],
)
def test_trust_is_in_the_one_commit_that_runs(linter, tmp_path, trusted, revision, custom_code, package, said):
    kinds = f"hub,{package},,,{custom_code},,{trusted}"
    row = f"acme/one,{revision},transformers,bert,BertModel,text-encoder,fill-mask,110,nightly,{kinds}"
    found = list(linter.of_list(written(tmp_path, row)))
    assert [said in finding for finding in found] == [True] * bool(said), found


def test_classes_of_a_models_own_code_are_counted_as_not_checked(linter, tmp_path):
    row = ROW.replace("bert,BertModel", "neat,NeatModel").replace(",no,,", ",no,yes,")
    assert not list(linter.of_list(written(tmp_path, row)))
    assert linter.of_own_code == 1


def test_all_mistakes_of_a_list_are_told_at_once(linter, tmp_path):
    row = ROW.replace("nightly", "monthly").replace("110", "many")
    assert len(list(linter.of_list(written(tmp_path, row, "too,short", ROW, ROW)))) == 4


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertPooler"])
def test_a_class_that_is_registered_or_defined_is_right(linter, tmp_path, name):
    assert not list(linter.of_list(written(tmp_path, ROW.replace("BertModel", name))))


def test_a_model_is_in_one_list_and_written_in_one_way(linter, tmp_path):
    first, second = written(tmp_path, ROW), written(tmp_path, ROW, name="second.csv")
    assert not list(linter.of_list(first))
    assert list(linter.of_list(second)) == [
        f"{second}:2: bert/BertModel/acme/one/synthetic is in {first}:2 too; keep one of them"
    ]
    shouted = ROW.replace("acme/one", "ACME/one").replace("BertModel", "BertForMaskedLM")
    (finding,) = Linter(linter._registry, None).of_list(written(tmp_path, ROW, shouted))
    assert "ACME/one is written acme/one in line 2" in finding


def test_classes_of_a_library_that_is_absent_are_counted_as_not_checked(tmp_path, linter):
    blind = Linter(linter._registry, None)
    assert not list(blind.of_list(written(tmp_path, ROW.replace("transformers,bert,BertModel", "diffusers,A,A"))))
    assert blind.unchecked == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("old,acme/one", ""),
        ("old,acme/noe", "no list has acme/noe; did you mean acme/one?"),
        ("acme/one,acme/one", "acme/one is an old id, and"),
        ("first,second", "second is an old id itself"),
        ("second,acme/one", "second is in line 2 too"),
        ("a b,acme/one", "'a b' is no Hub id"),
    ],
)
def test_aliases_lead_from_an_old_id_to_a_listed_one(linter, tmp_path, line, said):
    assert not list(linter.of_list(written(tmp_path, ROW)))
    path = written(tmp_path, "second,acme/one", line, header="old_id,new_id", name="aliases.csv")
    found = [finding for finding in linter.of_aliases(path) if finding.startswith(f"{path}:3: ")]
    assert [said in finding for finding in found[:1]] == [True] * bool(said)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bert/*", ""),
        ("*/compiled/*", ""),
        ("bert/BertModel/*", ""),
        ("brt/*", "speaks of no model_type that is known; did you mean bert?"),
        ("bert/BertModle/*", "speaks of no class that bert has; did you mean BertModel?"),
    ],
)
def test_what_is_known_to_fail_names_what_there_is(linter, tmp_path, case, said):
    known = Expectation(case, Verdict.CRASH, "why", date(2026, 1, 1), where="tpu.toml:7")
    found = list(linter.of_expectations(tmp_path / "tpu.toml", [known]))
    assert [finding.startswith(f"{tmp_path}/tpu.toml:7: ") and said in finding for finding in found] == [True] * bool(
        said
    )


def test_a_recipe_is_of_a_registered_type(linter, tmp_path):
    for name in ("bert", "gpt3"):
        (tmp_path / f"{name}.toml").write_text("")
    (finding,) = linter.of_recipes(tmp_path)
    assert "gpt3.toml:1: " in finding
    assert "did you mean gpt2?" in finding


def zoo_lint(*arguments: object) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nfrom harness.cli import main\ntry: main(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules, 'transformers' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "lint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)


def test_all_that_ships_is_clean_and_nothing_heavy_is_loaded():
    done = zoo_lint()
    assert done.returncode == 0, done.stdout
    assert not done.stdout
    models = len(load_list("hub")) + len(load_list("smoke"))
    assert f"{models} models of " in done.stderr
    assert done.stderr.splitlines()[-1] == "False False"


def test_the_exit_code_tells_findings_from_files_that_cannot_be_read(tmp_path):
    found = zoo_lint(written(tmp_path, ROW.replace("nightly", "monthly")))
    assert (found.returncode, len(found.stdout.splitlines())) == (1, 1)
    unreadable = zoo_lint(written(tmp_path, header="what,is,this"))
    assert (unreadable.returncode, unreadable.stdout) == (2, "")
    assert "missing columns model_id" in unreadable.stderr
    assert "1 of the files cannot be read" in unreadable.stderr
