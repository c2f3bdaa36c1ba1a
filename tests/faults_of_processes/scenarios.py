"""The catalogue: what is done to a run, in which process and stage, and what must become of it."""

from dataclasses import dataclass

from harness.cases import Stage, Verdict

REFERENCE, MODEL, CASE = "reference", "model", "case"
"""The process that is struck: the one that computes a reference, that imports a model's code, or that runs a case."""


@dataclass(frozen=True)
class Scenario:
    """A strike, and the row that its case must end in; every other case of the run must pass.

    `said` is part of the row's message, `printed` of its log or detail. `attempts` are the verdicts of all attempts
    where there were several. One that `hangs` is given a short limit.
    """

    strike: str
    verdict: Verdict
    stage: Stage = Stage.RUN
    process: str = CASE
    signal: str = ""
    exit_code: int | None = None
    said: str = ""
    printed: str = ""
    attempts: tuple[Verdict, ...] = ()
    hangs: bool = False

    @property
    def name(self) -> str:
        """Unique, and valid as the name of a model: `aborts-in-run`, `aborts-in-import-of-model`."""
        where = self.stage.value if self.stage is not Stage.IMPORT else f"import-of-{self.process}"
        return f"{self.strike}-in-{where}"

    def happens(self, process: str, stage: Stage) -> bool:
        """Whether it is time to strike."""
        return (process, stage) == (self.process, self.stage)


def _segfault(verdict: Verdict, stage: Stage, process: str = CASE) -> Scenario:
    said = f"killed by SIGSEGV in stage {stage}"
    return Scenario(
        "reads_address_zero", verdict, stage, process, "SIGSEGV", said=said, printed="about to read address"
    )


def _of_cpu(strike: str, stage: Stage, verdict: Verdict, **more) -> Scenario:
    return Scenario(strike, verdict, stage, REFERENCE, **more)


def _crash(strike: str, signal: str, **more) -> Scenario:
    return Scenario(strike, Verdict.CRASH, signal=signal, said=f"killed by {signal} in stage run", **more)


def _left(strike: str, exit_code: int | None, **more) -> Scenario:
    return Scenario(strike, Verdict.EXITED, exit_code=exit_code, said="ended without a result", **more)


def _error(strike: str, said: str, **more) -> Scenario:
    return Scenario(strike, Verdict.RUN_ERROR, said=said, **more)


def _garbage(strike: str, **more) -> Scenario:
    return Scenario(strike, Verdict.EXITED, said="wrote something else than a message in stage run", **more)


def _hang(strike: str, **more) -> Scenario:
    return Scenario(strike, Verdict.TIMEOUT, said="exceeded its limit", hangs=True, **more)


def _harmless(strike: str, **more) -> Scenario:
    return Scenario(strike, Verdict.PASS, **more)


def _taken(strike: str, **more) -> Scenario:
    return Scenario(strike, Verdict.PASS, attempts=(Verdict.HARNESS_ERROR, Verdict.PASS), **more)


SCENARIOS = (
    _segfault(Verdict.BUILD_ERROR, Stage.IMPORT, REFERENCE),
    _segfault(Verdict.BUILD_ERROR, Stage.BUILD, REFERENCE),
    _segfault(Verdict.INPUT_ERROR, Stage.INPUTS, REFERENCE),
    _segfault(Verdict.REFERENCE_ERROR, Stage.REFERENCE, REFERENCE),
    _segfault(Verdict.CRASH, Stage.IMPORT, MODEL),
    _segfault(Verdict.CRASH, Stage.TO_DEVICE),
    _segfault(Verdict.CRASH, Stage.COMPILE),
    _segfault(Verdict.CRASH, Stage.RUN),
    _segfault(Verdict.CRASH, Stage.COMPARE),
    _crash("aborts", "SIGABRT", printed="Fatal Python error: Abort"),
    _crash("reads_beyond_a_file", "SIGBUS", printed="reads_beyond_a_file"),
    _crash("raises_sigfpe", "SIGFPE", printed="raises_sigfpe"),
    _crash("raises_sigill", "SIGILL", printed="raises_sigill"),
    _crash("overflows_the_stack_of_c", "SIGSEGV", printed="Fatal Python error: Segmentation fault"),
    _left("exits_with_0", 0),
    _left("exits_with_3", 3),
    _left("has_a_thread_that_exits", 4, stage=Stage.COMPARE),
    _left("closes_its_pipes", None),
    _left("leaves_a_grandchild_that_holds_its_channel", 3),
    _of_cpu("exits_with_3", Stage.REFERENCE, Verdict.REFERENCE_ERROR, exit_code=3, said="the reference process ended"),
    _error("raises_an_error", "ValueError: \x1b[31mno such"),
    _error("calls_sys_exit", "SystemExit: 5"),
    _error("recurses_for_ever", "RecursionError: maximum recursion depth exceeded"),
    _error("raises_10_megabytes", "RuntimeError: begin xxx", printed="characters left out"),
    _error("raises_control_characters", "RuntimeError"),
    _error("raises_what_is_no_unicode", "RuntimeError: ???"),
    _error("raises_what_has_no_text", "Mute: its text cannot be made (ValueError)"),
    _error("raises_a_type_of_endless_name", "LongLong"),
    _error("raises_keyboard_interrupt", "KeyboardInterrupt"),
    _error("raises_generator_exit", "GeneratorExit: closed"),
    Scenario("raises_an_error", Verdict.LOAD_ERROR, Stage.TO_DEVICE, said="ValueError"),
    Scenario("raises_an_error", Verdict.COMPILE_ERROR, Stage.COMPILE, said="ValueError"),
    Scenario("asks_for_too_much_memory", Verdict.OOM_HOST, said="MemoryError"),
    Scenario("runs_into_its_memory_limit", Verdict.OOM_HOST, said="MemoryError"),
    Scenario("is_refused_memory_by_torch", Verdict.OOM_HOST, said="can't allocate memory"),
    Scenario(
        "is_refused_memory_in_cpp",
        Verdict.OOM_HOST,
        signal="SIGABRT",
        said="refused memory by the host, and ended by SIGABRT",
        printed="std::bad_alloc",
    ),
    _of_cpu("asks_for_too_much_memory", Stage.REFERENCE, Verdict.OOM_HOST, said="MemoryError"),
    Scenario("fills_the_disk", Verdict.DISK_FULL, said="No space left on device"),
    Scenario("outgrows_the_largest_file", Verdict.DISK_FULL, said="File too large"),
    Scenario("fills_the_disk_from_rust", Verdict.DISK_FULL, said="No space left on device"),
    _of_cpu("fills_the_disk", Stage.BUILD, Verdict.DISK_FULL, said="No space left on device"),
    Scenario("is_killed", Verdict.HARNESS_ERROR, said="was stopped from outside by SIGKILL in stage run"),
    _taken("is_killed_once"),
    _taken("is_killed_once_as_a_model", stage=Stage.IMPORT, process=MODEL),
    _taken("is_terminated_once"),
    _taken("loses_its_parent_once"),
    _taken("loses_its_server_once"),
    _harmless("loses_its_worker_once"),
    Scenario("loses_its_worker", Verdict.HARNESS_ERROR, said="died while it ran this case"),
    _hang("sleeps", printed="in sleeps"),
    _hang("hangs_in_c", printed="in hangs_in_c"),
    _hang("ignores_signals"),
    _hang("stops_itself"),
    _of_cpu("sleeps", Stage.REFERENCE, Verdict.REFERENCE_ERROR, said="exceeded its limit", hangs=True),
    _garbage("writes_garbage"),
    _garbage("writes_half_a_message", exit_code=0),
    _garbage("writes_too_long_a_message"),
    _garbage("writes_another_protocol"),
    _garbage("writes_an_unknown_stage"),
    _garbage("writes_a_number_as_its_result"),
    _harmless("floods_stdout", printed="bytes left out"),
    _harmless("floods_stderr", printed="bytes left out"),
    _crash("prints_what_is_no_text", "SIGABRT", printed="before \ufffd\ufffd\0 after"),
    _harmless("floods_with_warnings", printed="warning 2999"),
    *(
        _harmless(name)
        for name in (
            "leaves_a_grandchild",
            "leaves_a_daemon",
            "leaves_threads",
            "leaves_a_large_temporary_file",
            "exits_at_exit",
            "changes_signal_handlers",
            "closes_stdin",
            "reads_stdin",
            "loses_stdout",
            "deletes_its_working_folder",
            "sets_umask",
            "empties_its_environment",
            "uses_up_its_descriptors",
        )
    ),
)
LOSES_ITS_USERS_PROCESS = Scenario("loses_its_users_process_once", Verdict.PASS)
LOSES_ITS_MACHINE = Scenario("loses_its_machine_once", Verdict.PASS)
"""These end the run, and pass when it is resumed."""
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, LOSES_ITS_USERS_PROCESS, LOSES_ITS_MACHINE)}
