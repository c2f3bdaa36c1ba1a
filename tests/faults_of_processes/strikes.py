"""What a model or a backend does to the process that it runs in. Each is called in the stage that a scenario names.

A strike gets the channel of its process to the harness. One that returns has done no harm: its case must pass.
"""

import atexit
import contextlib
import ctypes
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import psutil

FLOOD = 100 * 2**20
"""Bytes that a flood prints."""
FOREVER = 1000.0


def _sleep():
    while True:
        time.sleep(FOREVER)


def _first_time(name):
    """Whether nothing of this name was struck before in this run."""
    try:
        (Path(os.environ["STRIKES"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _owner(channel):
    """The process that made the channel: the worker."""
    told = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", told)[0]


# Signals of the process's own making


def reads_address_zero(channel):
    os.write(2, b"about to read address zero\n")
    ctypes.string_at(0)


def aborts(channel):
    os.abort()


def reads_beyond_a_file(channel):
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as pages:
            file.truncate(0)
            pages[0]


def raises_sigfpe(channel):
    os.kill(os.getpid(), signal.SIGFPE)


def raises_sigill(channel):
    os.kill(os.getpid(), signal.SIGILL)


def overflows_the_stack_of_c(channel):
    resource.setrlimit(resource.RLIMIT_STACK, (2**20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    sys.setrecursionlimit(1 << 30)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    two = (ctypes.c_int * 2)()
    sort = ctypes.PyDLL(None).qsort

    @compare
    def deeper(_one, _other):
        sort(two, 2, 4, deeper)
        return 0

    sort(two, 2, 4, deeper)


# Exits


def exits_with_0(channel):
    os._exit(0)


def exits_with_3(channel):
    os._exit(3)


def calls_sys_exit(channel):
    sys.exit(5)


def has_a_thread_that_exits(channel):
    threading.Thread(target=os._exit, args=(4,)).start()
    _sleep()


# Exceptions


def raises_an_error(channel):
    raise ValueError("\x1b[31mno such\nthing\x1b[0m")


def recurses_for_ever(channel):
    raises = lambda: raises()  # noqa: E731
    raises()


def raises_10_megabytes(channel):
    raise RuntimeError("begin " + "x" * 10**7 + " end")


def raises_control_characters(channel):
    raise RuntimeError("\0" * 10**6)


def raises_what_is_no_unicode(channel):
    raise RuntimeError("\udcff" * 1000)


def raises_what_has_no_text(channel):
    class Mute(Exception):
        def __str__(self):
            raise ValueError("no text")

    raise Mute


def raises_a_type_of_endless_name(channel):
    raise type("Long" * 10**6, (Exception,), {})("a long name")


def raises_keyboard_interrupt(channel):
    raise KeyboardInterrupt


def raises_generator_exit(channel):
    raise GeneratorExit("closed")


# Memory and disk


def asks_for_too_much_memory(channel):
    bytearray(1 << 60)


def runs_into_its_memory_limit(channel):
    now = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**26, now + 2**26))
    bytearray(2**28)


def is_refused_memory_by_torch(channel):
    raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to")


def is_refused_memory_in_cpp(channel):
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def fills_the_disk(channel):
    with open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")


def outgrows_the_largest_file(channel):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(1000))
        file.write(b"x")


def fills_the_disk_from_rust(channel):
    raise RuntimeError("I/O error: No space left on device (os error 28)")


# Killed by others


def is_killed(channel):
    os.kill(os.getpid(), signal.SIGKILL)


def is_killed_once(channel):
    if _first_time("process killed"):
        is_killed(channel)


def is_killed_once_as_a_model(channel):
    if _first_time("model killed"):
        is_killed(channel)


def is_terminated_once(channel):
    if _first_time("process terminated"):
        os.kill(os.getpid(), signal.SIGTERM)
        _sleep()


def loses_its_parent_once(channel):
    if _first_time("parent killed"):
        os.kill(os.getppid(), signal.SIGKILL)
        _sleep()


def loses_its_server_once(channel):
    if _first_time("server killed"):
        servers = [one for one in psutil.Process().parents() if "harness.jobs.zygote" in one.cmdline()]
        servers[-1].kill()
        _sleep()


def loses_its_worker(channel):
    """Once the worker has told that the case is in this stage: a signal may be faster than a message."""
    since, told = time.time() - 0.3, Path(os.environ["ZOO_STORE"]).glob
    while not any(
        "/loses_its_worker" in live.read_text() and '"run"' in live.read_text() and live.stat().st_mtime >= since
        for live in told("runs/*/live/*.json")
    ):
        time.sleep(0.02)
    os.kill(_owner(channel), signal.SIGKILL)
    _sleep()


def loses_its_worker_once(channel):
    if _first_time("worker killed"):
        loses_its_worker(channel)


def loses_its_users_process_once(channel):
    if _first_time("user's process killed"):
        psutil.Process(_owner(channel)).parent().kill()
        _sleep()


def loses_its_machine_once(channel):
    """All processes of the run at once, this one last."""
    if _first_time("machine killed"):
        user = psutil.Process(_owner(channel)).parent()
        for process in (user, *user.children(recursive=True)):
            if process.pid != os.getpid():
                process.kill()
        os.kill(os.getpid(), signal.SIGKILL)


# Hangs


def sleeps(channel):
    _sleep()


def hangs_in_c(channel):
    holding = ctypes.PyDLL(None)  # unlike CDLL it keeps the interpreter's lock
    while True:
        holding.sleep(1000)


def ignores_signals(channel):
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    _sleep()


def stops_itself(channel):
    os.kill(os.getpid(), signal.SIGSTOP)


# The result


def writes_garbage(channel):
    channel.socket.send(b"\x00\xff not json")
    _sleep()


def writes_half_a_message(channel):
    channel.socket.send(b'{"at": 1.0, "result": {"verd')
    os._exit(0)


def writes_too_long_a_message(channel):
    channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    channel.socket.send(b'{"at": 1.0, "result": {"verdict": "PASS", "message": "' + b"x" * 150 * 2**10 + b'"}}')
    _sleep()


def writes_another_protocol(channel):
    channel.send({"progress": 0.5})
    _sleep()


def writes_an_unknown_stage(channel):
    channel.send({"at": 1.0, "stage": "lunch"})
    _sleep()


def writes_a_number_as_its_result(channel):
    channel.send({"at": 1.0, "result": 5})
    _sleep()


def closes_its_pipes(channel):
    for fd in (1, 2, channel.fileno()):
        os.close(fd)
    _sleep()


# Output


def floods_stdout(channel):
    _flood(1)


def floods_stderr(channel):
    _flood(2)


def _flood(fd):
    block = b"\xff\xfe flood \n" * (FLOOD // 1000)
    for _ in range(100):
        os.write(fd, block)


def prints_what_is_no_text(channel):
    os.write(1, b"before \xff\xfe\x00 after\n")
    os.abort()


def floods_with_warnings(channel):
    warnings.simplefilter("always")
    for number in range(3000):
        warnings.warn(f"warning {number}", stacklevel=1)


# What it leaves behind


def leaves_a_grandchild(channel):
    if os.fork() == 0:
        _sleep()


def leaves_a_daemon(channel):
    """One that has left the process group and the session."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        _sleep()
    os.wait()


def leaves_a_grandchild_that_holds_its_channel(channel):
    if os.fork() == 0:
        _sleep()
    os._exit(3)


def leaves_threads(channel):
    for daemon in (True, False, True, False):
        threading.Thread(target=_sleep, daemon=daemon).start()


def leaves_a_large_temporary_file(channel):
    with tempfile.NamedTemporaryFile(prefix="large-", delete=False) as file:
        file.truncate(2**30)


def exits_at_exit(channel):
    atexit.register(os._exit, 9)


# What it does to its own process, and must not do to the next one


def changes_signal_handlers(channel):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def closes_stdin(channel):
    os.close(0)


def reads_stdin(channel):
    sys.stdin.read()


def loses_stdout(channel):
    sys.stdout = None


def deletes_its_working_folder(channel):
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def sets_umask(channel):
    os.umask(0o777)


def empties_its_environment(channel):
    os.environ.clear()
    sys.path.clear()


def uses_up_its_descriptors(channel):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)
