"""The owner's side of job processes: start servers, fork children, watch stages, enforce limits, tell how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from harness.cases import Stage
from harness.jobs.channel import Channel, ChannelClosed, Garbage
from harness.jobs.zygote import STACK_SIGNAL

LOG_HEAD_BYTES, LOG_TAIL_BYTES = 8 * 1024, 16 * 1024
"""How much of a process's output is kept as evidence: a fatal message comes before the stacks it causes."""
LEAVE_SECONDS = 10.0
"""How long a process that has delivered its result may take to end."""
STACK_SECONDS = 1.0
"""How long an overdue process gets to write its stacks before it is killed."""
SERVER_SECONDS = 300.0
"""How long a server may take to import the libraries, on a loaded machine with a cold disk."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall seconds each stage may take, generous enough for a machine shared with other jobs."""

    import_: float = 120.0
    fetch: float = 600.0
    build: float = 120.0
    inputs: float = 60.0
    reference: float = 180.0
    to_device: float = 120.0
    compile: float = 600.0
    run: float = 300.0
    compare: float = 120.0

    def of(self, stage: Stage) -> float:
        """The limit of `stage`."""
        return getattr(self, {Stage.IMPORT: "import_", Stage.TO_DEVICE: "to_device"}.get(stage, stage.value))


@dataclass(slots=True)
class Outcome:
    """How a child ended: its result where it delivered one, and the evidence where it did not.

    `status` is the wait status (see `os.waitstatus_to_exitcode`), None where the server died too.
    `overdue` is the limit in seconds that the stage exceeded; `killed` says that the supervisor ended
    the process, for being overdue or for not leaving.
    """

    stage: Stage
    result: dict[str, Any] | None = None
    status: int | None = None
    overdue: float | None = None
    killed: bool = False
    garbage: str = ""
    log: str = ""
    peak_bytes: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def signal(self) -> str:
        """Name of the signal that ended the process, empty where none did or where it was ours."""
        if self.status is None or self.killed or not os.WIFSIGNALED(self.status):
            return ""
        number = os.WTERMSIG(self.status)
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"

    @property
    def exit_code(self) -> int | None:
        """Exit code of a process that left by itself."""
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None


class ServerFailed(RuntimeError):
    """A server could not be started or has died. `kind` is the type of the exception that it reported."""

    def __init__(self, message: str, *, kind: str = "", log: str = "") -> None:
        super().__init__(message)
        self.kind, self.log = kind, log


class Child:
    """A process forked by a server, its channel and its log."""

    def __init__(self, pid: int, channel: Channel, log: IO[bytes]) -> None:
        self.pid, self.channel, self.log = pid, channel, log

    def printed(self) -> str:
        """What the process printed, its middle left out where that is long."""
        return printed(self.log)

    def kill(self) -> None:
        """Kill the whole process group."""
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Release descriptors."""
        self.channel.close()
        self.log.close()


class Server:
    """The owner's handle on a zygote, launched by `launch` or being a child itself (`adopt`)."""

    def __init__(self, channel: Channel, log: IO[bytes], process: subprocess.Popen[bytes] | None, name: str) -> None:
        self.channel, self.log, self.process, self.name = channel, log, process, name

    @classmethod
    def launch(cls, name: str, preload: str, argument: str, environment: dict[str, str]) -> Server:
        """Start a fresh interpreter that calls `preload` (`module:function`) with `argument`, then serves.

        Returns at once; `ready` waits.
        """
        ours, theirs = Channel.pair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - it outlives this call
        command = [sys.executable, "-m", "harness.jobs.zygote", str(theirs.fileno()), preload, argument]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(theirs.fileno(),)
        )
        theirs.close()
        return cls(ours, log, process, name)

    @classmethod
    def adopt(cls, child: Child, name: str) -> Server:
        """A child that serves on its own channel."""
        return cls(child.channel, child.log, None, name)

    def ready(self, seconds: float = SERVER_SECONDS) -> dict[str, Any]:
        """Wait for the server's greeting and return what its preload told. Raises ServerFailed."""
        if not _readable([self.channel], seconds):
            raise ServerFailed(f"the {self.name} server was not ready within {seconds:.0f} s", log=printed(self.log))
        try:
            message, _ = self.channel.receive()
        except (ChannelClosed, Garbage) as gone:
            status = self.process.wait(LEAVE_SECONDS) if self.process else "unknown"
            raise ServerFailed(
                f"the {self.name} server ended while starting (exit status {status})", log=printed(self.log)
            ) from gone
        if "failed" in message:
            failed = message["failed"]
            raise ServerFailed(failed["message"], kind=failed["type"], log=printed(self.log))
        return message["hello"]["told"]

    def fork(self, call: str, payload: dict[str, Any]) -> Child:
        """Fork a child that runs `call` (`module:function`) with `payload`. Raises ServerFailed."""
        ours, theirs = Channel.pair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - it outlives this call
        try:
            self.channel.send({"call": call, "payload": payload}, (theirs.fileno(), log.fileno()))
            while "forked" not in (message := self.channel.receive()[0]):
                pass  # a late death notice of an earlier child, which nobody waits for any more
            return Child(message["forked"], ours, log)
        except (ChannelClosed, Garbage) as gone:
            ours.close()
            log.close()
            raise ServerFailed(f"the {self.name} server has died", log=printed(self.log)) from gone
        finally:
            theirs.close()

    def ended(self, child: Child, seconds: float) -> dict[str, Any] | None:
        """The death notice of `child`, or None where none came in time or the server is gone."""
        until = time.monotonic() + seconds
        while _readable([self.channel], max(until - time.monotonic(), 0.0)):
            try:
                message, _ = self.channel.receive()
            except (ChannelClosed, Garbage):
                return None
            if message.get("ended") == child.pid:
                return message
        return None

    def close(self) -> None:
        """End the server and everything it has forked."""
        self.channel.close()
        if self.process is not None:
            try:
                self.process.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def supervise(server: Server, child: Child, limits: Limits, first: Stage, on_stage: Callable[[Stage], None]) -> Outcome:
    """Follow a child to its end, whatever that is, and leave nothing of it behind."""
    outcome = Outcome(first)
    notice = None
    entered = time.monotonic()
    try:
        while outcome.result is None:
            left = entered + limits.of(outcome.stage) - time.monotonic()
            ready = _readable([child.channel, server.channel], max(left, 0.0))
            if not ready:
                outcome.overdue = limits.of(outcome.stage)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, STACK_SIGNAL)
                notice = server.ended(child, STACK_SECONDS)
                break
            if child.channel not in ready:  # a death notice; what the child sent before it is read first
                break
            try:
                message, _ = child.channel.receive()
            except ChannelClosed:
                break
            except Garbage as bad:
                outcome.garbage = str(bad)
                break
            now = message["at"]
            outcome.seconds[outcome.stage] = outcome.seconds.get(outcome.stage, 0.0) + now - entered
            entered = now
            if "stage" in message:
                outcome.stage = Stage(message["stage"])
                on_stage(outcome.stage)
            else:
                outcome.result = message["result"]
        if outcome.result is None:
            outcome.seconds[outcome.stage] = outcome.seconds.get(outcome.stage, 0.0) + time.monotonic() - entered
        if notice is None and outcome.overdue is None:
            notice = server.ended(child, LEAVE_SECONDS)
        if notice is None:
            outcome.killed = True
            child.kill()
            notice = server.ended(child, LEAVE_SECONDS)
        if notice is not None:
            outcome.status, outcome.peak_bytes = notice["status"], notice["peak_bytes"]
        outcome.log = child.printed()
        return outcome
    finally:
        child.kill()
        child.close()


def printed(log: IO[bytes]) -> str:
    """The first LOG_HEAD_BYTES and the last LOG_TAIL_BYTES of a log file, undecodable bytes replaced."""
    size = log.seek(0, os.SEEK_END)
    left_out = size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    log.seek(0)
    if left_out <= 0:
        return log.read().decode("utf-8", "replace")
    head = log.read(LOG_HEAD_BYTES).decode("utf-8", "replace")
    log.seek(-LOG_TAIL_BYTES, os.SEEK_END)
    return f"{head}\n[... {left_out} bytes left out ...]\n{log.read().decode('utf-8', 'replace')}"


def _readable(channels: list[Channel], seconds: float) -> list[Channel]:
    poll = select.poll()
    for channel in channels:
        poll.register(channel, select.POLLIN)
    found = {fd for fd, _ in poll.poll(seconds * 1000)}
    return [channel for channel in channels if channel.fileno() in found]
