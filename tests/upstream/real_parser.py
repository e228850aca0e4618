"""Run in a child process: parses command lines with a release's own argparse parser.

``python real_parser.py FOLDER`` reads JSON lists of command lines, one list a line, and answers with what the
parser of FOLDER/sglang makes of each: ``{"values": ...}``, those that differ from the defaults, or
``{"error": ...}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

from real_server_args import load, plain


class _Refused(Exception):  # noqa: N818 (what argparse says, not an error of ours)
    """What the parser would print before it exits."""


def _refuse(message):
    raise _Refused(message)


def _leave(status=0, message=None):
    raise _Refused(f"exit {status} {message}")


def answer(parser, defaults, argv):
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
            parsed = vars(parser.parse_args(argv))
    except _Refused as refused:
        return {"error": str(refused)}
    except Exception as error:  # noqa: BLE001 (an action of SGLang's that ends the launch)
        return {"raised": type(error).__name__, "error": str(error)}
    values = {name: plain(value) for name, value in parsed.items()}
    missing = object()
    changed = {name: value for name, value in values.items() if defaults.get(name, missing) != value}
    return {"values": changed}


def main():
    _, parser = load(sys.argv[1])
    parser.error, parser.exit = _refuse, _leave
    parsed = vars(parser.parse_args(["--model-path", "m"]))
    defaults = {name: plain(value) for name, value in parsed.items() if name != "model_path"}
    print("ready", flush=True)
    for line in sys.stdin:
        answers = [answer(parser, defaults, argv) for argv in json.loads(line)]
        print(json.dumps(answers, default=repr), flush=True)


if __name__ == "__main__":
    main()
