"""Every `zoo` command that the README, the documents and the workflow show is one that exists, with those options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml

from harness.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PLACES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / ".github").rglob("*.yml"))]
COMMAND = re.compile(r"(?<![\w./-])(?:\.venv/bin/)?zoo ((?:--)?[a-z]+)((?:[^\n|`#;&)]|\\\n)*)")


def shown(path: Path) -> list[tuple[str, str]]:
    """Verb and the rest of each command in a document: in a code block, between backticks, in a step of a workflow."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yml":
        steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
        parts = [step["run"] for step in steps if "run" in step]
    else:
        parts = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    return [(found[1], found[2]) for part in parts for found in COMMAND.finditer(part)]


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.name)
def test_what_is_documented_exists(path):
    commands = typer.main.get_command(app).commands
    for verb, rest in shown(path):
        command, words = commands.get(verb), rest.split()
        assert command is not None, f"zoo {verb}"
        if hasattr(command, "commands"):
            command = command.commands.get(words[0])
            assert command is not None, f"zoo {verb} {words[0]}"
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest):
            assert option in options | {"--help"}, f"zoo {verb} {rest}: {option}"


def test_the_documents_show_commands():
    assert len({verb for path in PLACES for verb, _ in shown(path)}) >= 10
