"""Makes every job of a run a hostile one; a pytest plugin, named in the environment of `zoo run`."""

from hostile_jobs import OURS
from scenarios import BY_NAME

from harness import jobs
from harness.cases import Profile
from harness.jobs import supervisor
from harness.jobs.supervisor import Limits, Server

_fork, _join = Server.fork, Server.join
Server.fork = lambda server, call, payload: _fork(server, OURS[call], payload)
Server.join = lambda name, preload, *more: _join(name, OURS[preload], *more)
supervisor.LEAVE_SECONDS = 1.0  # for those that never leave by themselves


class HostileRunner(jobs.JobRunner):
    """The job runner, which waits less long for those that hang."""

    def run(self, case):
        scenario = BY_NAME.get(case.entry.model_id.partition("/")[2])
        short = scenario is not None and scenario.hangs and case.profile is Profile.PADDED
        self.processes.limits = Limits(run=1.0, reference=1.0) if short else Limits()
        return super().run(case)


jobs.JobRunner = HostileRunner
