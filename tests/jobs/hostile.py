"""Children that misbehave on purpose, forked by the real server and watched by the real supervisor."""

import ctypes
import os
import signal
import sys
import time

from harness.cases import Stage
from harness.jobs.report import Report


def nothing(argument):
    return {"argument": argument}


def refuses(argument):
    raise ImportError(f"cannot preload {argument}")


def dies_at_start(argument):
    os._exit(3)


def good(payload, channel):
    report = Report(channel)
    report.enter(Stage.BUILD)
    report.enter(Stage.RUN)
    print("all is well")
    report.deliver(value=payload["value"])


def raises(payload, channel):
    report = Report(channel)
    report.enter(Stage.RUN)
    try:
        raise ValueError("\x1b[31mno such\nthing\x1b[0m" + "x" * 100_000)
    except ValueError as error:
        report.fail(error)


def leaks_an_exception(payload, channel):
    raise RuntimeError("nobody caught me")


def segfaults(payload, channel):
    Report(channel).enter(Stage.COMPILE)
    print("about to touch null", flush=True)
    ctypes.string_at(0)


def aborts(payload, channel):
    Report(channel).enter(Stage.RUN)
    os.abort()


def killed(payload, channel):
    Report(channel).enter(Stage.RUN)
    os.kill(os.getpid(), signal.SIGKILL)


def overflows_the_stack(payload, channel):
    Report(channel).enter(Stage.RUN)
    sys.setrecursionlimit(1 << 30)

    class Deep:
        def __repr__(self):
            return repr(self)

    repr(Deep())


def leaves(payload, channel):
    Report(channel).enter(Stage.RUN)
    os._exit(7)


def hangs(payload, channel):
    Report(channel).enter(Stage.RUN)
    time.sleep(1000)


def ignores_termination(payload, channel):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hangs(payload, channel)


def lingers_after_its_result(payload, channel):
    good(payload, channel)
    time.sleep(1000)


def writes_garbage(payload, channel):
    Report(channel).enter(Stage.RUN)
    channel.socket.send(b"\x00\xff not json")
    time.sleep(1000)


def closes_its_pipes(payload, channel):
    Report(channel).enter(Stage.RUN)
    for fd in (1, 2, channel.fileno()):
        os.close(fd)
    time.sleep(1000)


def floods_stdout(payload, channel):
    report = Report(channel)
    report.enter(Stage.RUN)
    block = b"\xff\xfe flood \n" * 10_000
    for _ in range(100):
        os.write(1, block)
    report.deliver(value="flooded")


def leaves_grandchildren(payload, channel):
    report = Report(channel)
    report.enter(Stage.RUN)
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
        os._exit(0)
    report.deliver(value=pid)


def exhausts_memory(payload, channel):
    report = Report(channel)
    report.enter(Stage.RUN)
    try:
        bytearray(1 << 60)
    except MemoryError as error:
        report.fail(error)


def serves(payload, channel):
    """A child that is a server itself, as the process of a model is."""
    from harness.jobs import zygote

    zygote.serve(channel, hello={"told": {"pid": os.getpid()}})


def reference_watched(argument):
    """The reference's own preload, in a process that notes which thread sets up PyTorch's threads."""
    from harness.jobs import preload

    preload.reference(argument)
    return _watch()


def target_watched(argument):
    from harness.jobs import preload

    preload.target(argument)
    return _watch()


_set_up_by = []


def _watch():
    import threading

    import torch

    original = torch.set_num_threads

    def noting(threads):
        _set_up_by.append((os.getpid(), threading.current_thread() is threading.main_thread()))
        original(threads)

    torch.set_num_threads = noting
    return {}


def who_set_up_threads(payload, channel):
    report = Report(channel)
    report.enter(Stage.RUN)
    report.deliver(by_main=[main for pid, main in _set_up_by if pid == os.getpid()])
