"""``sgdoctor configs``: list, lint and explain kernel configuration files."""

from __future__ import annotations

from typing import Any

import click

from sgdoctor.cli.options import FORMAT, split_launch

_PATH = click.argument("path", metavar="[PATH]", required=False)
_SGLANG = click.option("--sglang", metavar="VERSION", help="The SGLang release that reads the files.")
_TRITON = click.option("--triton", metavar="VERSION", help="The Triton that is installed with it.")

LIST_EPILOG = """\b
Examples:
  sgdoctor configs list --device H200
  sgdoctor configs list --sglang 0.5.23 --device B200 --family moe
  sgdoctor configs list /opt/venv --triton 3.6.0
"""

LINT_EPILOG = """\b
Examples:
  sgdoctor configs lint
  sgdoctor configs lint /opt/venv -v
  sgdoctor configs lint my-configs/ --sglang 0.5.12 || exit 1
  sgdoctor configs lint "E=128,N=768,device_name=NVIDIA_H200.json"

docs/configs.md lists the codes. Exit codes are those of check.
"""

EXPLAIN_EPILOG = """\b
Examples:
  sgdoctor configs explain --sglang 0.5.12 --model qwen3/ --gpu H200:4 --tp 4
  sgdoctor configs explain /opt/venv --model qwen3/ --gpu H100 --launch run.sh
  sgdoctor configs explain mine/ --sglang 0.5.23 --model qwen3/ --gpu B200
  sgdoctor configs explain --model qwen3/ --gpu H200:8 -- sglang serve --tp 8
"""


EPILOG = """\b
Examples:
  sgdoctor configs list --device H200
  sgdoctor configs lint /opt/venv
  sgdoctor configs explain --sglang 0.5.12 --model qwen3/ --gpu H200:4 --tp 4
"""


@click.group("configs", epilog=EPILOG)
def command() -> None:
    """List kernel configuration files, say what is wrong with them, and which one would be used.

    PATH is an SGLang (an interpreter, a virtual environment, site-packages, an unpacked wheel, a checkout), a
    folder of config files, or one file; by default the SGLang of python3.
    """


@command.command("list", epilog=LIST_EPILOG, short_help="List config files.")
@_PATH
@_SGLANG
@click.option("--device", metavar="NAME", help="Only files of GPUs whose name has these words: H200.")
@click.option("--triton", metavar="VERSION", help="Only the folder of this Triton version.")
@click.option(
    "--family", metavar="FAMILY", type=click.Choice(["moe", "gemm", "lora"]), help="moe, gemm or lora."
)
def list_files(
    path: str | None, sglang: str | None, device: str | None, triton: str | None, family: str | None
) -> int:
    """List config files: of PATH, or, with --sglang and no PATH, those that a release ships."""
    from sgdoctor.cli.output import emit
    from sgdoctor.cli.terminal import show
    from sgdoctor.configs import files, places, show_list

    shipped = path is None and sglang is not None
    found = files.shipped(sglang or "") if shipped else files.collect(places.find(path))
    chosen = [file for file in found if files.wanted(file, device=device, triton=triton, family=family)]
    emit(show(lambda width, encoding: show_list.lines(chosen, width, encoding)))
    return 0


@command.command("lint", epilog=LINT_EPILOG, short_help="Say what is wrong with config files.")
@_PATH
@_SGLANG
@FORMAT
@click.option(
    "--fail-on",
    metavar="SEVERITY",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="error",
    help="Exit with 1 at problems this bad: error, warning, info or never. Default: error.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what is only worth knowing, too.")
def lint_files(path: str | None, sglang: str | None, form: str, fail_on: str, *, verbose: bool) -> int:
    """Say what is wrong with config files, as the SGLang that reads them would use them."""
    from sgdoctor.cli.output import emit, emit_json
    from sgdoctor.cli.terminal import show
    from sgdoctor.configs import lint, places, show_lint
    from sgdoctor.upstream.config_problem import SEVERITIES

    result = lint.lint(places.find(path), sglang)
    if form == "json":
        emit_json(show_lint.as_json(result))
    else:
        emit(show(lambda width, encoding: show_lint.lines(result, width, encoding, verbose=verbose)))
    worst = result.worst
    if worst is not None and fail_on in SEVERITIES[SEVERITIES.index(worst) :]:
        return 1
    return 3 if result.unread else 0


class _Explain(click.Command):
    """A command whose arguments behind ``--`` are a launch command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the launch command."""
        args, launch = split_launch(ctx, args)
        rest = super().parse_args(ctx, args)
        ctx.params["command"] = launch
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ...]"]


@command.command(
    "explain",
    cls=_Explain,
    epilog=EXPLAIN_EPILOG,
    short_help="Say which file a deployment would use, and why.",
)
@_PATH
@_SGLANG
@_TRITON
@click.option("--model", metavar="PATH", required=True, help="The model's folder or its config.json.")
@click.option("--gpu", metavar="NAME[:COUNT]", required=True, help="The GPUs: H200:8.")
@click.option("--launch", metavar="FILE", help="A launch script. A launch command goes behind --.")
@click.option("--tp", metavar="N", type=click.IntRange(1), help="As if launched with --tp-size N.")
@click.option("--ep", metavar="N", type=click.IntRange(1), help="As if launched with --ep-size N.")
@click.option("--dtype", metavar="NAME", help="As if launched with --dtype NAME.")
@click.option("--quantization", metavar="NAME", help="As if launched with --quantization NAME.")
def explain_lookup(path: str | None, **options: Any) -> int:
    """Say which fused-MoE config files a deployment would use, and why: the folders as they are searched.

    With --sglang and no PATH the files are those that the release ships.
    """
    from sgdoctor.cli.output import emit
    from sgdoctor.cli.terminal import show
    from sgdoctor.configs import explain, places, show_explain

    flags = {"--tp-size": "tp", "--ep-size": "ep", "--dtype": "dtype", "--quantization": "quantization"}
    given = tuple(
        word
        for flag, name in flags.items()
        if options[name] is not None
        for word in (flag, str(options[name]))
    )
    asked = {name: options[name] for name in ("model", "gpu", "command", "launch", "sglang", "triton")}
    place = None if path is None and options["sglang"] is not None else places.find(path)
    found = explain.explain(explain.Question(flags=given, **asked), place)
    for number, each in enumerate(found):
        text = show(lambda width, encoding, each=each: show_explain.lines(each, width, encoding))  # type: ignore[misc]
        emit(("\n" if number else "") + text)
    return 3 if any(each.undecided for each in found) else 0
