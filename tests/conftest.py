"""Settings of every test process, made before anything imports torch."""

import os
from collections.abc import Callable, Iterator

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


@pytest.fixture(scope="session")
def _buckets() -> Iterator[None]:
    import buckets

    with buckets.served() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def new_bucket(request) -> Callable[[str], str]:
    """Makes an empty bucket, of `s3` or `gs`, and says its URL; skips where clients or servers are not installed."""
    import buckets

    def make(scheme: str) -> str:
        if told := buckets.missing(scheme):
            pytest.skip(told)
        request.getfixturevalue("_buckets")
        return buckets.new_bucket(scheme)

    return make
