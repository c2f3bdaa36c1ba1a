"""Faults that end the process of a case at the first attempt only, or at each."""

import os
import signal
from pathlib import Path

import torch


def _attempt():
    """Which attempt of the case this is, from 1 on."""
    marks = Path(os.environ["ATTEMPTS"])
    (marks / str(os.getpid())).touch()
    return len(list(marks.iterdir()))


def crashes_at_first():
    if _attempt() == 1:
        os.kill(os.getpid(), signal.SIGSEGV)


def crashes():
    _attempt()
    os.kill(os.getpid(), signal.SIGSEGV)


def crashes_then_exits():
    if _attempt() == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(3)


def wrong():
    _attempt()
    original = torch.nn.LayerNorm.forward
    torch.nn.LayerNorm.forward = lambda norm, x: 1.5 * original(norm, x)


def finds_its_device_in_use():
    _attempt()
    raise RuntimeError("TPU is already in use by process with pid 1")


def finds_its_device_in_use_twice():
    if _attempt() <= 2:
        raise RuntimeError("TPU is already in use by process with pid 1")


def halts_the_device():
    def halt(norm, x):
        Path(os.environ["HALTED"]).touch()
        raise RuntimeError("the device has halted")

    torch.nn.LayerNorm.forward = halt
