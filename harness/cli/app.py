"""The verbs put together."""

from __future__ import annotations

import typer

from harness.cli import (
    add,
    bisect,
    clusters,
    coverage,
    dashboard,
    diff,
    doctor,
    expect,
    export,
    gc,
    lint,
    list_,
    liveness,
    merge,
    plan,
    prefetch,
    repro,
    rerun,
    run,
    show,
    sql,
)

app = typer.Typer(
    help="Do Hugging Face models give the right numbers on Google TPUs through TorchTPU, and on other backends?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("prefetch")(prefetch.prefetch)
app.command("merge")(merge.merge)
app.command("rerun")(rerun.rerun)
app.command("bisect")(bisect.bisect)
app.command("list")(list_.list_models)
app.command("lint")(lint.lint)
app.command("add")(add.add)
app.command("show")(show.show)
app.command("repro")(repro.repro)
app.command("doctor")(doctor.doctor)
app.command("diff")(diff.diff)
app.command("clusters")(clusters.clusters)
app.command("export")(export.export)
app.command("gc")(gc.gc)
app.command("sql")(sql.sql)
app.command("dashboard")(dashboard.dashboard)
app.command("coverage")(coverage.coverage)
app.command("liveness")(liveness.liveness)
app.add_typer(expect.app, name="expect")
