"""The `zoo` command: one file per verb. Starting it imports neither torch nor anything else that is heavy."""

from __future__ import annotations

import sys

EXIT_OK = 0
"""All as expected."""
EXIT_UNEXPECTED = 1
"""Measured, and something unexpected: a new failure, an unexpected pass, a case without a result."""
EXIT_NOTHING = 2
"""Nothing was measured: bad input, or nothing here could run it."""
EXIT_INTERRUPTED = 130
"""Stopped by Ctrl-C or SIGTERM; what had finished is recorded, and the run can be resumed."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process with one of the codes above."""
    from harness.cli.app import app
    from harness.jobs.memory import BadAmount
    from harness.plan import PlanError
    from harness.targets import UnknownTarget
    from harness.targets.base import TargetUnavailable
    from model_lists import ListError
    from model_lists.expectations import ExpectationError
    from results import StoreError

    try:
        app(arguments, prog_name="zoo")
    except (PlanError, ListError, ExpectationError, StoreError, UnknownTarget, TargetUnavailable, BadAmount) as error:
        print(f"ERROR: {error}", file=sys.stderr)
        sys.exit(EXIT_NOTHING)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of a listing (`zoo list | head`) went away; flushing at exit would complain again.
        sys.stdout = None
        sys.exit(EXIT_OK)
