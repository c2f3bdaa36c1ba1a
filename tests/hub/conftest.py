"""A Hub on loopback for each test, and the library allowed to talk to it."""

from __future__ import annotations

import pytest
from hub_server import HubServer
from huggingface_hub import constants


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with HubServer() as server:
        yield server
