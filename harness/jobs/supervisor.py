"""The owner's side of job processes: start servers, fork children, watch stages, enforce limits, tell how it ended."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.cases import Stage
from harness.jobs import zygote
from harness.jobs.channel import Channel, ChannelClosed, Garbage

LOG_HEAD_BYTES, LOG_TAIL_BYTES = 8 * 1024, 16 * 1024
"""How much of a process's output is kept as evidence: a fatal message comes before the stacks it causes."""
LEAVE_SECONDS = 10.0
"""How long a process that has delivered its result may take to end."""
LOG_LOOK_SECONDS, LOG_MOST_BYTES = 0.5, 64 * 1024 * 1024
"""How often the log of a process that says nothing else is looked at, and how large it may be on disk before all of it
that is not evidence is given back."""
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
    the process, for being overdue or for not leaving. `kernel_kills` counts processes of this machine that the
    kernel killed for lack of memory meanwhile, None where it does not say.
    """

    stage: Stage
    result: dict[str, Any] | None = None
    status: int | None = None
    overdue: float | None = None
    killed: bool = False
    garbage: str = ""
    log: str = ""
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    kernel_kills: int | None = None
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
    def taken(self) -> bool:
        """Whether it was ended from outside, which says nothing about what it ran: with its server, or by a signal."""
        if self.result is not None or self.overdue is not None or self.garbage:
            return False
        return self.status is None or self.signal in _STOPS or (self.signal == "SIGKILL" and self.kernel_kills == 0)

    @property
    def exit_code(self) -> int | None:
        """Exit code of a process that left by itself."""
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None


_STOPS = ("SIGTERM", "SIGHUP", "SIGINT")


class ServerFailed(RuntimeError):
    """A server could not be started or has died. `kind` is the type of the exception that it reported."""

    def __init__(self, message: str, *, kind: str = "", log: str = "") -> None:
        super().__init__(message)
        self.kind, self.log = kind, log


class JobTaken(ServerFailed):
    """A job was ended from outside in `stage`, with its server or alone."""

    def __init__(self, message: str, stage: Stage, log: str) -> None:
        super().__init__(message, log=log)
        self.stage = stage


class Child:
    """A process forked by a server, its channel and its log."""

    def __init__(self, pid: int, channel: Channel, log: IO[bytes]) -> None:
        self.pid, self.channel, self.log = pid, channel, log

    def printed(self) -> str:
        """What the process printed, its middle left out where that is long."""
        return printed(self.log)

    def kill(self) -> None:
        """Kill the whole process group."""
        zygote.kill(self.pid)

    def close(self) -> None:
        """Release descriptors."""
        self.channel.close()
        self.log.close()


class Server:
    """The owner's handle on a zygote: a server, launched or already there (`join`), or a child (`adopt`)."""

    def __init__(self, channel: Channel, log: IO[bytes] | None, process: subprocess.Popen[bytes] | None, name: str):
        self.channel, self.log, self.process, self.name = channel, log, process, name
        self._told: dict[str, Any] | None = None

    @classmethod
    def join(
        cls, name: str, preload: str, argument: str, environment: Callable[[], dict[str, str]], folder: Path
    ) -> Server:
        """Connect to the server `name` of `folder`, after launching it where there is none.

        It is a fresh interpreter that calls `preload` (`module:function`) with `argument`, then serves all who
        join. `folder` is private to this user. Returns at once; `ready` waits.
        """
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(folder / f"{name}.lock", "w") as lock, _opened(folder) as place:
            fcntl.flock(lock, fcntl.LOCK_EX)
            address = f"/proc/self/fd/{place}/{name}.socket"  # as short as a socket's path must be
            try:
                ours.connect(address)
                return cls(Channel(ours), None, None, name)
            except (FileNotFoundError, ConnectionRefusedError):
                Path(address).unlink(missing_ok=True)  # a dead server's
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(address)
                listener.listen(128)
                ours.connect(address)
                log = tempfile.TemporaryFile()  # noqa: SIM115 - it outlives this call
                process = subprocess.Popen(
                    [sys.executable, "-m", "harness.jobs.zygote", str(listener.fileno()), preload, argument],
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(),),
                )
        return cls(Channel(ours), log, process, name)

    @classmethod
    def adopt(cls, child: Child, name: str) -> Server:
        """A child that serves on its own channel."""
        return cls(child.channel, child.log, None, name)

    def ready(self, seconds: float = SERVER_SECONDS) -> dict[str, Any]:
        """Wait for the server's greeting, if need be, and return what its preload told. Raises ServerFailed."""
        if self._told is not None:
            return self._told
        if not _readable([self.channel], seconds):
            raise ServerFailed(f"the {self.name} server was not ready within {seconds:.0f} s", log=printed(self.log))
        try:
            message, _ = self.channel.receive()
        except (ChannelClosed, Garbage) as gone:
            raise ServerFailed(f"the {self.name} server ended while starting", log=printed(self.log)) from gone
        if "failed" in message:
            failed = message["failed"]
            raise ServerFailed(failed["message"], kind=failed["type"], log=printed(self.log))
        self._told = message["hello"]["told"]
        return self._told

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
        """Leave the server, which ends what it has forked for this owner, and itself if this was the last one."""
        self.channel.close()
        if self.log is not None:
            self.log.close()
        if self.process is not None:
            _left.append(self.process)
        _left[:] = [process for process in _left if process.poll() is None]


_left: list[subprocess.Popen[bytes]] = []
"""Servers this process has launched and left, which others may still use; kept to be reaped."""


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def supervise(server: Server, child: Child, limits: Limits, first: Stage, on_stage: Callable[[Stage], None]) -> Outcome:
    """Follow a child to its end, whatever that is, and leave nothing of it behind."""
    outcome = Outcome(first)
    notice, kills = None, oom_kills()
    entered = time.monotonic()
    try:
        while outcome.result is None:
            left = entered + limits.of(outcome.stage) - time.monotonic()
            ready = _readable([child.channel, server.channel], min(max(left, 0.0), LOG_LOOK_SECONDS))
            forget_middle(child.log)
            if not ready and left > LOG_LOOK_SECONDS:
                continue
            if not ready:
                outcome.overdue = limits.of(outcome.stage)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, zygote.STACK_SIGNAL)
                notice = server.ended(child, STACK_SECONDS)
                break
            if child.channel not in ready:  # a death notice; what the child sent before it is read first
                break
            try:
                message = _told(child.channel)
            except ChannelClosed:
                break
            except Garbage as bad:
                outcome.garbage = str(bad)
                break
            now = message["at"]
            outcome.seconds[outcome.stage] = outcome.seconds.get(outcome.stage, 0.0) + now - entered
            entered = now
            if "stage" in message:
                outcome.stage = message["stage"]
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
            outcome.status = notice["status"]
            outcome.cpu_seconds, outcome.peak_bytes = notice["cpu_seconds"], notice["peak_bytes"]
        outcome.log = child.printed()
        outcome.kernel_kills = kills_since(kills)
        return outcome
    finally:
        child.kill()
        child.close()


def _told(channel: Channel) -> dict[str, Any]:
    """The next message of a job: when, and a stage or a result. Raises ChannelClosed, Garbage for anything else."""
    message, _ = channel.receive()
    match message:
        case {"at": int() | float(), "stage": str(stage)} if stage in list(Stage):
            return message | {"stage": Stage(stage)}
        case {"at": int() | float(), "result": dict()}:
            return message
    raise Garbage(f"{str(message)[:80]!r}")


def oom_kills() -> int | None:
    """Processes that the kernel has killed since it started because memory ran out, in whichever control group."""
    try:
        return int(_OOM_KILLS.search(Path("/proc/vmstat").read_text())[1])
    except (OSError, TypeError):
        return None


def kills_since(before: int | None) -> int | None:
    """How many more there are than when `oom_kills` said `before`; None where it did not say then or does not now."""
    now = oom_kills()
    return None if before is None or now is None else now - before


_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def printed(log: IO[bytes] | None) -> str:
    """The first LOG_HEAD_BYTES and the last LOG_TAIL_BYTES of a log file, undecodable bytes replaced."""
    if log is None:
        return ""
    size = log.seek(0, os.SEEK_END)
    left_out = size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    log.seek(0)
    if left_out <= 0:
        return log.read().decode("utf-8", "replace")
    head = log.read(LOG_HEAD_BYTES).decode("utf-8", "replace")
    log.seek(-LOG_TAIL_BYTES, os.SEEK_END)
    return f"{head}\n[... {left_out} bytes left out ...]\n{log.read().decode('utf-8', 'replace')}"


def forget_middle(log: IO[bytes]) -> None:
    """Give back the disk space of what `printed` leaves out, where a log takes more than `LOG_MOST_BYTES`.

    A hole is made where that was (fallocate(2), Linux), so that whoever writes goes on where it is; file systems that
    cannot do that keep it all.
    """
    found = os.fstat(log.fileno())
    length = found.st_size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    if found.st_blocks * 512 <= LOG_MOST_BYTES or length <= 0 or sys.platform != "linux":
        return
    fallocate = ctypes.CDLL(None).fallocate
    fallocate(log.fileno(), _PUNCH_HOLE, ctypes.c_long(LOG_HEAD_BYTES), ctypes.c_long(length))


_PUNCH_HOLE = 0x01 | 0x02
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of linux/falloc.h."""


def _readable(channels: list[Channel], seconds: float) -> list[Channel]:
    poll = select.poll()
    for channel in channels:
        poll.register(channel, select.POLLIN)
    found = {fd for fd, _ in poll.poll(seconds * 1000)}
    return [channel for channel in channels if channel.fileno() in found]
