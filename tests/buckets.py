"""Buckets on this machine: the S3 and Google Cloud Storage of packages that imitate them, for the real clients."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

CLIENTS = {"s3": "s3fs", "gs": "gcsfs"}
SERVERS = {"s3": "moto", "gs": "gcp_storage_emulator"}
_BUCKET = "zoo-test"
_PATIENCE = 60.0
"""Seconds for a server to answer."""


def missing(scheme: str) -> str:
    """What to install for buckets of that scheme; empty where all is there."""
    absent = [name for name in (CLIENTS[scheme], SERVERS[scheme]) if find_spec(name) is None]
    return f"{scheme}:// needs {' and '.join(absent)}: `nox -s remotes` installs them" if absent else ""


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """Environment variables that lead every client to an empty bucket of its own, while its servers run."""
    with tempfile.TemporaryFile() as log:
        ports = {scheme: _free_port() for scheme in SERVERS}
        commands = {
            "s3": ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports["s3"])],
            "gs": ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={ports['gs']}", "--in-memory"],
        }
        servers = [
            subprocess.Popen([sys.executable, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            for scheme, command in commands.items()
            if not missing(scheme)
        ]
        try:
            for scheme, port in ports.items():
                if not missing(scheme):
                    _wait(port)
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}",
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "AWS_DEFAULT_REGION": "us-east-1",
                "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{ports['gs']}",
                # Otherwise gcsfs asks each bucket its type by gRPC, which the emulator does not speak, for a minute.
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
                "GOOGLE_CLOUD_PROJECT": "test",
            }
        finally:
            for server in servers:
                server.kill()
                server.wait()


def new_bucket(scheme: str) -> str:
    """The URL of an empty bucket; the environment of `served` must be set."""
    import fsspec

    name = f"{_BUCKET}-{secrets.token_hex(4)}"
    fsspec.filesystem(scheme).mkdir(name)
    return f"{scheme}://{name}"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _wait(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
