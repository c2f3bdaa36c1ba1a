"""A warm, single-threaded process that forks children which inherit all it has imported.

The standard library's forkserver does not serve: a worker needs two servers with different
environments (one that has loaded the backend and one that never does), it re-imports the
caller's main module in every child, swallows errors of preloading, and cannot be nested,
while here a model's process is itself a zygote forked from the target's.

Protocol, over a `Channel`: the owner sends `{"call": "module:function", "payload": {...}}` with
two descriptors (the child's own channel, and a file for its stdout and stderr) and gets
`{"forked": pid}`; when the child ends, `{"ended": pid, "status": wait status, "peak_bytes": n}`.
When the owner goes away, every child's process group is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from harness.jobs.channel import Channel, ChannelClosed, Garbage

Call = Callable[[dict[str, Any], Channel], None]
STACK_SIGNAL = signal.SIGUSR1
"""Sent to a child that overran its limit: it writes the stack of every thread to its log."""
_PR_SET_PDEATHSIG = 1


def call(name: str) -> Call:
    """The function named `module:function`."""
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


def serve(channel: Channel, *, hello: dict[str, Any] | None = None) -> None:
    """Fork children on request until the owner closes its end. Never raises for what a child does."""
    children: set[int] = set()
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, the pages it shares with us
    wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        try:
            if hello is not None:
                channel.send({"hello": hello})
            while True:
                for key, _ in selector.select():
                    if key.fd == wake_reader:
                        os.read(wake_reader, 4096)
                        _reap(children, channel)
                    else:
                        request, fds = channel.receive(fds=2)
                        pid = os.fork()
                        if pid == 0:
                            selector.close()
                            os.close(wake_reader)
                            os.close(wake_writer)
                            channel.close()
                            _be_child(request, *fds)
                        children.add(pid)
                        for fd in fds:
                            os.close(fd)
                        channel.send({"forked": pid})
        except (ChannelClosed, Garbage):
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


def _reap(children: set[int], channel: Channel) -> None:
    while children:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in children:
            children.discard(pid)
            channel.send({"ended": pid, "status": status, "peak_bytes": usage.ru_maxrss * 1024})


def _be_child(request: dict[str, Any], channel_fd: int, log_fd: int) -> None:
    """Become a child: own process group, own log, dies with its zygote; runs the call and exits."""
    code = 70  # EX_SOFTWARE
    try:
        os.setsid()
        die_with_parent()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        faulthandler.enable(2, all_threads=True)
        faulthandler.register(STACK_SIGNAL, 2, all_threads=True)
        channel = Channel(socket.socket(fileno=channel_fd))
        call(request["call"])(request["payload"], channel)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - the boundary of a process: the owner reads this in the log
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """`python -m harness.jobs.zygote FD MODULE:FUNCTION ARGUMENT`: preload by calling the function, then serve.

    What the function returns, and the seconds it took, are told to the owner as `{"hello": ...}`;
    a failure as `{"failed": {"type": ..., "message": ...}}`.
    """
    fd, preload, argument = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal group; our owner decides
    channel = Channel(socket.socket(fileno=fd))
    started = time.monotonic()
    try:
        told = call(preload)(argument)  # type: ignore[call-arg, arg-type]
    except Exception as failure:  # noqa: BLE001 - the boundary of a process: the owner turns it into a verdict
        traceback.print_exc()
        channel.send({"failed": {"type": type(failure).__name__, "message": str(failure)[:4000]}})
        return
    serve(channel, hello={"told": told, "seconds": time.monotonic() - started})


if __name__ == "__main__":
    main()
