"""Settings of every test process, made before anything imports torch."""

import os

import pytest

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # backends are loaded by the processes under test alone
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def one_thread():
    """Models small enough for one thread are slower on several, which other tests want."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
