"""A warm, single-threaded process that forks children which inherit all it has imported.

The standard library's forkserver does not serve: a worker needs two servers with different
environments (one that has loaded the backend and one that never does), it re-imports the
caller's main module in every child, swallows errors of preloading, and cannot be nested,
while here a model's process is itself a zygote forked from the target's.

A server listens on a socket and gives each owner that connects a branch of its own: a fork of what it
has imported, so that the workers of a run share one server and its memory. It ends with its last owner.

Protocol, over a `Channel`: the owner sends `{"call": "module:function", "payload": {...}}` with
two descriptors (the child's own channel, and a file for its stdout and stderr) and gets
`{"forked": pid}`; when the child ends, `{"ended": pid, "status": wait status, ...}` with what it used.
When the owner goes away, every child's process group is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.jobs.channel import Channel, ChannelClosed, Garbage

Call = Callable[[dict[str, Any], Channel], None]
STACK_SIGNAL = signal.SIGUSR1
"""Sent to a child that overran its limit: it writes the stack of every thread to its log."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def call(name: str) -> Call:
    """The function named `module:function`."""
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


def serve(channel: Channel, *, hello: dict[str, Any] | None = None) -> None:
    """Fork children on request until the owner closes its end. Never raises for what a child does."""
    children: set[int] = set()
    _adopt_orphans()
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
                        _kill_orphans(children)
                        for pid, status, usage in _ended():
                            if pid not in children:
                                continue
                            children.discard(pid)
                            cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
                            channel.send({"ended": pid, "status": status, "cpu_seconds": cpu, "peak_bytes": peak})
                    else:
                        request, fds = channel.receive(fds=2)
                        parent, pid = os.getpid(), os.fork()
                        if pid == 0:
                            selector.close()
                            os.close(wake_reader)
                            os.close(wake_writer)
                            channel.close()
                            _be_child(request, parent, *fds)
                        children.add(pid)
                        for fd in fds:
                            os.close(fd)
                        channel.send({"forked": pid})
        except (ChannelClosed, Garbage):
            for pid in children:
                kill(pid)


def kill(pid: int) -> None:
    """Kill a child with its process group, and by itself where it was forked so lately that it leads none yet."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            send(pid, signal.SIGKILL)


def _adopt_orphans() -> None:
    """Become the parent of what a child leaves behind, even where that has left the child's process group (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_orphans(children: set[int]) -> None:
    """Kill what has been adopted, everything that was not forked here; what that leaves behind is next."""
    with contextlib.suppress(FileNotFoundError):  # a kernel that does not list children
        for pid in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
            if pid not in children:
                kill(pid)


def _ended() -> Iterator[tuple[int, int, resource.struct_rusage]]:
    """Children that have ended since the last call: pid, wait status, resources used."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.wait4(-1, os.WNOHANG))[0]:
            yield ended


def _be_child(request: dict[str, Any], parent: int, channel_fd: int, log_fd: int) -> None:
    """Become a child: own process group, own log, dies with its zygote; runs the call and exits."""
    code = 70  # EX_SOFTWARE
    try:
        os.setsid()
        die_with_parent(parent)
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
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends (Linux).

    `parent` is the pid of the one that forked it: where that has ended already, this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(0)


def main() -> None:
    """`python -m harness.jobs.zygote FD MODULE:FUNCTION ARGUMENT`: preload by calling the function, then listen.

    FD is a listening socket with at least one owner waiting. What the function returns is told to every
    owner as `{"hello": ...}`; a failure as `{"failed": {"type": ..., "message": ...}}`.
    """
    listener, preload, argument = socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal group; our owners decide
    try:
        greeting = {"hello": {"told": call(preload)(argument)}}  # type: ignore[call-arg, arg-type]
    except Exception as failure:  # noqa: BLE001 - the boundary of a process: the owner turns it into a verdict
        traceback.print_exc()
        greeting = {"failed": {"type": type(failure).__name__, "message": str(failure)[:4000]}}
    gc.collect()
    gc.freeze()
    _listen(listener, greeting)


def _listen(listener: socket.socket, greeting: dict[str, Any]) -> None:
    """Give each owner that connects a forked branch that serves it, until the last owner is gone."""
    branches: set[int] = set()
    listener.setblocking(False)
    wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        while True:
            selector.select()
            with contextlib.suppress(BlockingIOError):
                os.read(wake_reader, 4096)
            branches.difference_update(pid for pid, _, _ in _ended())
            try:
                owner, _ = listener.accept()
            except BlockingIOError:
                if branches:
                    continue
                listener.close()  # at once: this process takes a while to end, and nobody must join it meanwhile
                return
            owner.setblocking(True)
            parent, pid = os.getpid(), os.fork()
            if pid == 0:
                selector.close()
                for fd in (listener.fileno(), wake_reader, wake_writer):
                    os.close(fd)
                die_with_parent(parent)
                _serve_owner(Channel(owner), greeting)
            branches.add(pid)
            owner.close()


def _serve_owner(channel: Channel, greeting: dict[str, Any]) -> None:
    """Serve one owner to its end, in a branch of the server."""
    code = 0
    try:
        if "hello" in greeting:
            serve(channel, hello=greeting["hello"])
        else:
            channel.send(greeting)
    except ChannelClosed:
        pass
    except BaseException:  # noqa: BLE001 - the boundary of a process: it must not return into the server's loop
        traceback.print_exc()
        code = 70
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
