"""Children that misbehave on purpose, forked by the real server and watched by the real supervisor."""

import os
import signal
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


def killed(payload, channel):
    Report(channel).enter(Stage.RUN)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(payload, channel):
    Report(channel).enter(Stage.RUN)
    time.sleep(1000)


def lingers_after_its_result(payload, channel):
    good(payload, channel)
    time.sleep(1000)


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


def prints_without_end(payload, channel):
    Report(channel).enter(Stage.RUN)
    os.write(1, b"the cause\n")
    while True:
        os.write(1, b"x" * 65_535 + b"\n")
        time.sleep(0.002)
