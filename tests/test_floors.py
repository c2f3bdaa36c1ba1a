"""A room imports from its own floor and those below, as docs/architecture.md lists them, and never in a circle."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness", "model_lists", "results", "dashboards")
USES_ITS_NEIGHBOURS = "harness.execution"


def _floors() -> dict[str, int]:
    """The floor of each room, by the name of its module, out of the document's table."""
    rows = re.findall(r"^\| (\d) \| (.+) \|$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    return {room.replace("/", "."): int(floor) for floor, rooms in rows for room in re.findall(r"`(.+?)`", rooms)}


FLOORS = _floors()


def _room(module: str) -> str | None:
    """The room that a module is in, or None: the package `harness` itself is in none."""
    return next((room for room in FLOORS if f"{module}.".startswith(f"{room}.")), None)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text())


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything imported, inside functions and for type checkers too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{one.name}") for one in node.names)


def _may(room: str, other: str) -> bool:
    if FLOORS[room] == FLOORS[other] == 2:
        return room == USES_ITS_NEIGHBOURS
    return FLOORS[other] <= FLOORS[room]


def test_every_module_has_a_floor() -> None:
    assert [name for name, _ in _modules() if _room(name) is None] == ["harness"]


def test_imports_point_downwards_and_not_in_a_circle() -> None:
    wrong, used = [], defaultdict(set)
    for name, tree in _modules():
        room = _room(name)
        for line, imported in _imported(tree):
            if room is None or (other := _room(imported)) is None or other == room:
                continue
            used[room].add(other)
            if not _may(room, other):
                wrong.append(f"{name}:{line} imports {imported}")
    assert not wrong
    assert set(TopologicalSorter(used).static_order()) == set(FLOORS)


@pytest.mark.parametrize(
    ("room", "other"),
    [("harness.cases", "harness.models"), ("results", "dashboards"), ("harness.hub", "harness.models")],
)
def test_what_points_elsewhere_is_seen(room: str, other: str) -> None:
    assert not _may(room, other)
