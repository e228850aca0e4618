"""``sgdoctor fix``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sgdoctor.cli.options import FORMAT
from sgdoctor.cli.sources import SourcesCommand, sources_among, sources_from
from sgdoctor.errors import Undecided, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sgdoctor.fix.tune_moe import Done, Task, Wish
    from sgdoctor.report.layout import Line
    from sgdoctor.sources import Sources

SOURCES = (
    "--url",
    "--api-key",
    "--log",
    "--launch",
    "--model",
    "--python",
    "--environment",
    "--server-info",
    "--assume",
    "--snapshot",
)
EFFORTS = ("quick", "balanced", "full")
PICTURES = (".png", ".html")
UNDO_TAKES = ("undo", "output", "overlay", "dry_run")
FLAGS_TAKES = tuple("flags launch model python environment assume write unsafe dry_run form".split())

_FLAGS = "Take what has no effect, is deprecated or gone out of a launch script's flags."
_TUNE = "Tune the fused-MoE config that a deployment is missing, prove it, install it."
_UNDO = "Take back the newest repair; with --output or --overlay, that of this folder."
_WRITE = "With --flags: write the file; --undo restores it. Default: show the diff."
_UNSAFE = "With --flags: also what changes how the server runs."
_EFFORT = "quick, balanced or full (every configuration). Default: balanced."
_GPU = "Tune on this GPU, an index or UUID, busy or not. Default: all that are idle."
_OUTPUT = "Write the files there instead of into the installation."
_OVERLAY = "Make a folder for SGLANG_MOE_CONFIG_DIR: all bundled files and the new ones."
_DTYPE = "With --model alone: auto, bfloat16, float16 or fp8."
_TUNER = "sgdoctor, or sglang: the tuner of a source checkout. Default: sgdoctor."
_RAY = "The head of the Ray cluster, HOST:PORT, for --executor ray."
_REPORT = "Write the report there: a picture (.png) or a page (.html)."

EPILOG = """\b
Examples:
  sgdoctor fix --flags --launch run.sh
  sgdoctor fix --flags --launch run.sh --assume sglang.version=0.5.20 --write
  sgdoctor fix --flags --launch run.sh --format json
  sgdoctor fix --tune-moe --dry-run
  sgdoctor fix --tune-moe
  sgdoctor fix --tune-moe --model /models/m --tp 4
  sgdoctor fix --tune-moe --log server.log --model /models/m
  sgdoctor fix --tune-moe --gpu 1 --overlay /shared/moe -- sglang serve ...
  sgdoctor fix --undo --dry-run
  sgdoctor fix --undo

\b
Exit codes:
  0  installed or written, or nothing is missing, or nothing worth a file
  2  change the command or a file
  3  refused, with the reason; interrupted (the same command goes on)

With no source, this machine's servers are looked at. --tune-moe needs the
server's own torch and Triton and an idle GPU of the same kind; --dry-run needs
no GPU and writes nothing. --flags writes only with --write, and only scripts.
"""


@click.command("fix", cls=SourcesCommand, epilog=EPILOG)
@click.option("--flags", is_flag=True, help=_FLAGS)
@click.option("--tune-moe", is_flag=True, help=_TUNE)
@click.option("--undo", is_flag=True, help=_UNDO)
@sources_among(*SOURCES)
@click.option("--tp", metavar="N", type=click.IntRange(min=1), help="With --model alone: GPUs of the server.")
@click.option(
    "--ep", metavar="N", type=click.IntRange(min=1), help="With --model alone: expert parallel size."
)
@click.option(
    "--dtype", type=click.Choice(["auto", "bfloat16", "float16", "fp8"]), metavar="TYPE", help=_DTYPE
)
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option("--write", is_flag=True, help=_WRITE)
@click.option("--unsafe", is_flag=True, help=_UNSAFE)
@click.option("--effort", metavar="EFFORT", type=click.Choice(EFFORTS), default="balanced", help=_EFFORT)
@click.option("--gpu", "gpus", metavar="ID", multiple=True, help=_GPU)
@click.option("--share", is_flag=True, help="Tune on busy GPUs, too; timings are noisy then.")
@click.option("--output", metavar="DIR", type=click.Path(path_type=Path), help=_OUTPUT)
@click.option("--overlay", metavar="DIR", type=click.Path(path_type=Path), help=_OVERLAY)
@click.option("--retune", is_flag=True, help="Tune although the files are there.")
@click.option(
    "--tuner", metavar="NAME", type=click.Choice(["sgdoctor", "sglang"]), default="sgdoctor", help=_TUNER
)
@click.option(
    "--sglang-source", metavar="DIR", type=click.Path(path_type=Path), help="The checkout of SGLang."
)
@click.option(
    "--executor", metavar="NAME", type=click.Choice(["local", "ray"]), default="local", help="local or ray."
)
@click.option("--ray-address", metavar="ADDR", help=_RAY)
@click.option("--report", metavar="FILE", type=click.Path(path_type=Path), help=_REPORT)
@FORMAT
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Repair what a check finds: the flags of a launch script, a missing fused-MoE configuration."""
    if [options[each] for each in ("flags", "tune_moe", "undo")].count(True) != 1:
        raise UsageError(
            "say what to do: sgdoctor fix --flags repairs the flags of a launch script, sgdoctor fix "
            "--tune-moe tunes a missing fused-MoE config, sgdoctor fix --undo takes a repair back"
        )
    if options["flags"]:
        _refuse_with_flags(ctx)
        return _flags(options, write=options.pop("write"), unsafe=options.pop("unsafe"))
    for name in ("write", "unsafe"):
        if options[name]:
            raise UsageError(f"--{name} is for --flags")
    if options["output"] and options["overlay"]:
        raise UsageError("--output and --overlay are two places for the same files; give one")
    if options["undo"]:
        _refuse_with_undo(ctx)
        return _undo(options["output"] or options["overlay"], dry=options["dry_run"])
    return _tune(_sources(options), options)


def _refuse_with_undo(ctx: click.Context) -> None:
    """Raise UsageError for an option that was given and says how to tune: it would have no effect."""
    if ctx.params["command"]:
        raise UsageError("the command behind -- is for --tune-moe: --undo takes back the newest repair")
    option = _foreign(ctx, UNDO_TAKES)
    if option is not None:
        raise UsageError(
            f"{option} is for --tune-moe: --undo takes back the newest repair, or that of --output or "
            "--overlay DIR"
        )


def _refuse_with_flags(ctx: click.Context) -> None:
    """Raise UsageError for an option that is not about a launch file and where it runs."""
    if ctx.params["command"]:
        raise UsageError("--flags repairs a file: name it with --launch FILE, not behind --")
    option = _foreign(ctx, FLAGS_TAKES)
    if option is not None:
        raise UsageError(
            f"{option} is not for --flags, which takes --launch, --model, --python, --environment, --assume"
        )
    if not ctx.params["launch"]:
        raise UsageError("--flags repairs a file: name it with --launch FILE")
    if ctx.params["write"] and ctx.params["dry_run"]:
        raise UsageError("--write writes the file and --dry-run does not; give one")


def _foreign(ctx: click.Context, takes: tuple[str, ...]) -> str | None:
    """Return an option that was given and is not among those."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name not in takes:
            return parameter.opts[0]
    return None


def _flags(options: dict[str, Any], *, write: bool, unsafe: bool) -> int:
    from sgdoctor.cli.output import emit, emit_json
    from sgdoctor.cli.progress import Progress
    from sgdoctor.cli.terminal import show
    from sgdoctor.fix import flags, flags_report, flags_show, flags_write
    from sgdoctor.report.json import render

    as_json = options["form"] == "json"
    sources: Sources = sources_from(options)
    with Progress() as progress:
        plan = flags.plan(sources, unsafe=unsafe, say=progress.say)
    if not as_json:
        emit(show(lambda width, encoding: flags_show.lines(plan, width, encoding)))
        emit(show(lambda _width, encoding: flags_show.diff(plan, encoding)))
    record = flags_write.write(plan) if write and plan.repaired is not None else None
    if as_json:
        emit_json(render(flags_report.report(plan, record)))
    else:
        emit(show(lambda _width, encoding: flags_show.end(plan, record, encoding)))
    return 0


def _undo(folder: Path | None, *, dry: bool) -> int:
    from sgdoctor.cli.output import emit
    from sgdoctor.fix import install, moe_files
    from sgdoctor.fix import tune_moe_show as show

    record = moe_files.undoable(folder)
    _say(lambda width, encoding: show.undoing(record, width, encoding), aside=False)
    if dry:
        emit("Nothing was undone: --dry-run.\n")
        return 0
    done = install.undo(record)
    read = (
        "has the flags it was started with"
        if "flags" in record.manifest.about
        else "has read its config files"
    )
    emit("".join(f"{each}\n" for each in [*done, f"Restart the server: one that runs {read}."]))
    return 0


def _sources(options: dict[str, Any]) -> Sources:
    """Return the sources; ``--model DIR --tp 4`` alone stands for the launch command with these flags."""
    shape = {name: options.pop(name) for name in ("tp", "ep", "dtype")}
    given = [f"--{name}" for name, value in shape.items() if value is not None]
    sources: Sources = sources_from(options)
    named = [
        name for name in sources.named() if name not in ("--model", "--python", "--environment", "--assume")
    ]
    if given and named:
        raise UsageError(f"{given[0]} is for --model alone: {named[0]} says how the server is launched")
    if given and sources.model is None:
        raise UsageError(f"{given[0]} says how a model is served: name it with --model DIR")
    if sources.model is None or named:
        return sources
    return _launched(sources, shape)


def _launched(sources: Sources, shape: dict[str, Any]) -> Sources:
    import msgspec

    words = ["python3", "-m", "sglang.launch_server", "--model-path", str(sources.model)]
    for name, flag in (("tp", "--tp-size"), ("ep", "--ep-size")):
        words += [flag, str(shape[name])] if shape[name] is not None else []
    if shape["dtype"] is not None:
        words += ["--quantization" if shape["dtype"] == "fp8" else "--dtype", shape["dtype"]]
    return msgspec.structs.replace(sources, command=tuple(words))


def _wish(options: dict[str, Any]) -> Wish:
    from sgdoctor.fix.tune_moe import Wish

    ray = options["executor"] == "ray"
    if ray != bool(options["ray_address"]):
        raise UsageError("--executor ray and --ray-address HOST:PORT belong together")
    if ray and options["gpus"]:
        raise UsageError("--gpu names GPUs of this host, and --executor ray takes those of its cluster")
    if options["sglang_source"] and options["tuner"] != "sglang":
        raise UsageError("--sglang-source is for --tuner sglang")
    if ray and options["tuner"] == "sglang":
        raise UsageError("--tuner sglang runs on this host: leave out --executor ray")
    return Wish(
        effort=options["effort"],
        gpus=options["gpus"],
        share=options["share"],
        output=options["output"],
        overlay=options["overlay"],
        again=options["retune"],
        tuner=options["tuner"],
        sglang_source=options["sglang_source"],
        ray=options["ray_address"],
    )


def _tune(sources: Sources, options: dict[str, Any]) -> int:
    from sgdoctor.cli.output import emit, writable
    from sgdoctor.cli.progress import Progress
    from sgdoctor.fix import tune_moe
    from sgdoctor.fix import tune_moe_show as show

    wish, dry, as_json = _wish(options), options["dry_run"], options["form"] == "json"
    report: Path | None = options["report"]
    if report is not None:
        if report.suffix not in PICTURES:
            raise UsageError(f"--report {report}: a name that ends in {' or '.join(PICTURES)}")
        writable(report)
    with Progress() as progress:
        plan, tasks = tune_moe.prepare(sources, wish, dry=dry, say=progress.say)
    if not (as_json and (dry or not tasks)):
        _say(lambda width, encoding: show.before(plan, tasks, wish, width, encoding), aside=as_json)
    if dry or not tasks:
        if as_json:
            _json(show.planned_json(plan, tasks, wish), [])
        elif tasks:
            emit("Nothing was written: --dry-run.\n")
        return 0
    done = []
    for number, task in enumerate(tasks):
        one = _carry_out(task, wish)
        done.append(one)
        _say(lambda width, encoding, one=one: show.after(one, width, encoding), aside=as_json)
        if report is not None:
            _save(one, report.with_stem(f"{report.stem}-{number + 1}") if number else report)
    if as_json:
        _json(show.planned_json(plan, tasks, wish), [show.done_json(one) for one in done])
    return 0


def _carry_out(task: Task, wish: Wish) -> Done:
    from sgdoctor.cli.tuning import Tuning
    from sgdoctor.fix import tune_moe
    from sgdoctor.tune.dispatch import WorkersFailed

    try:
        with Tuning() as display:
            return tune_moe.carry_out(task, wish, display.show)
    except KeyboardInterrupt:
        raise Undecided(
            f"interrupted: what was measured is kept in {task.cache}, and the same command goes on from there"
        ) from None
    except WorkersFailed as error:
        raise Undecided(f"the tuner's workers did not start: {error}") from None


def _save(done: Done, path: Path) -> None:
    from sgdoctor.cli.output import complain, save
    from sgdoctor.fix import moe_html, moe_picture

    if path.suffix == ".html":
        save(path, moe_html.html(done.tuning))
        return
    missing = moe_picture.png(done.tuning, path)
    if missing is not None:
        complain(missing)


def _say(render: Any, *, aside: bool) -> None:
    """Print what ``render`` returns; ``aside`` on standard error, since standard output gets JSON."""
    from sgdoctor.cli.output import complain, emit
    from sgdoctor.cli.terminal import show

    if aside:
        lines: Iterable[Line] = render(80, "ascii")
        complain("\n".join("".join(text for text, _ in line) for line in lines))
    else:
        emit(show(render))


def _json(planned: dict[str, Any], tuned: list[dict[str, Any]]) -> None:
    from sgdoctor.cli.output import emit_json
    from sgdoctor.fix.report import report
    from sgdoctor.report.json import render

    emit_json(render(report(planned, tuned)))
