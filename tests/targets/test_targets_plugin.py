"""The plugin that stands in for a TPU: found, verified, and refused in one line where it is not the one expected."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util

import pytest

from harness.targets import TargetUnavailable, pjrt_shim
from harness.targets.tpu_emulated import PLUGIN_VARIABLE, TpuEmulated, find_plugin


@pytest.fixture(autouse=True)
def _fresh_search(monkeypatch):
    monkeypatch.delenv(PLUGIN_VARIABLE, raising=False)
    find_plugin.cache_clear()
    yield
    find_plugin.cache_clear()


def installed(monkeypatch, folder) -> None:
    """Make the plugin's package appear to be installed in `folder`, or not at all where that is None."""
    spec = None
    if folder is not None:
        spec = importlib.machinery.ModuleSpec("plugin", None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def refusal(action) -> str:
    with pytest.raises(TargetUnavailable) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_installed_plugin_is_the_published_file():
    plugin = find_plugin("")
    assert plugin.pinned
    assert plugin.sha256 == TpuEmulated().describe()["plugin_sha256"]


def test_a_missing_plugin_is_refused_with_what_to_install(monkeypatch):
    installed(monkeypatch, None)
    message = refusal(TpuEmulated().preload)
    assert "pip install lammps-jax-pjrt-cpu==0.11.2" in message
    assert PLUGIN_VARIABLE in message


def test_a_package_without_a_library_for_this_platform_is_refused(monkeypatch, tmp_path):
    installed(monkeypatch, tmp_path)
    assert "for this platform" in refusal(TpuEmulated().preload)


def test_an_altered_plugin_is_refused_before_it_is_loaded(monkeypatch, tmp_path):
    (tmp_path / "pjrt_c_api_cpu_plugin.so").write_bytes(b"not the published file")
    installed(monkeypatch, tmp_path)
    monkeypatch.setattr(pjrt_shim, "install", lambda *a, **k: pytest.fail("the altered file was loaded"))
    assert "is not the file published as 0.11.2" in refusal(TpuEmulated().preload)


def test_another_plugin_can_be_named_and_is_recorded_as_unpinned(monkeypatch, tmp_path):
    other = tmp_path / "other.so"
    other.write_bytes(b"x")
    monkeypatch.setenv(PLUGIN_VARIABLE, str(other))
    described = TpuEmulated().describe()
    assert described["plugin"] == f"unpinned {other}"
    assert described["plugin_sha256"] == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def test_a_named_plugin_that_does_not_exist_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(PLUGIN_VARIABLE, str(tmp_path / "gone.so"))
    assert "there is no such file" in refusal(lambda: TpuEmulated().plugin)


def test_a_file_that_is_no_plugin_is_refused(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("hello")
    assert "is not a loadable PJRT plugin" in refusal(lambda: pjrt_shim.install(text, stand_in=True))


@pytest.mark.parametrize(("major", "size", "word"), [(1, 4096, "knows 0.x"), (0, 200, "too small")])
def test_an_interface_other_than_the_known_one_is_refused(monkeypatch, tmp_path, major, size, word):
    table = (ctypes.c_char * 4096)()
    ctypes.c_size_t.from_buffer(table).value = size
    ctypes.c_int.from_buffer(table, 32).value = major

    before = bytes(table)

    class Loaded:
        GetPjrtApi = type("Function", (), {"restype": None, "__call__": lambda self: ctypes.addressof(table)})()

    monkeypatch.setattr(ctypes, "CDLL", lambda *a, **k: Loaded())
    assert word in refusal(lambda: pjrt_shim.install(tmp_path / "plugin.so", stand_in=True))
    assert bytes(table) == before
