"""The flags as read from the source text are those of SGLang's own parser."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sgdoctor.upstream import catalogue
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.source_fields import ServerArgsSource, SourceError
from sgdoctor.upstream.source_flags import read_flags

CLASSES = {
    "store": "_StoreAction",
    "store_true": "_StoreTrueAction",
    "boolean": "BooleanOptionalAction",
    "lora_paths": "LoRAPathAction",
    "deprecated": "DeprecatedAction",
    "deprecated_true": "DeprecatedStoreTrueAction",
    "deprecated_const": "DeprecatedStoreConstAction",
    "deprecated_alias": "DeprecatedAliasStoreAction",
}
TYPES = {
    None: "str",
    "loads": "json",
    "json_list_type": "json_list",
    "parse_cuda_graph_config_arg": "cuda_graph_config",
    "parse_cuda_graph_backend_arg": "cuda_graph_backend",
}
# argparse's names, which ServerArgs.from_cli_args renames up to 0.5.13
RENAMED = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "attention_context_parallel_size": "attn_cp_size",
    "moe_data_parallel_size": "moe_dp_size",
}


@pytest.fixture(scope="module", params=["0.5.10", "0.5.12", "0.5.23"])
def real(request, sglang_wheel):
    """Give a release's package folder and what its own code, imported in a child, says about ServerArgs."""
    source = sglang_wheel(request.param)
    script = Path(__file__).with_name("real_server_args.py")
    child = [sys.executable, "-W", "ignore", str(script), str(source)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=300, check=True)
    return source / "sglang", json.loads(done.stdout)


def test_the_flags_are_those_of_the_real_parser_in_its_order(real):
    package, said = real
    flags = read_flags(package)
    assert [as_read(flag) for flag in flags] == [as_registered(action) for action in said["actions"]]


def test_the_fields_are_those_of_the_real_class_in_its_order(real):
    package, said = real
    assert [field.name for field in ServerArgsSource(package).fields()] == said["fields"]


def test_the_catalogue_has_the_defaults_that_the_real_parser_leaves(real):
    package, said = real
    release = catalogue.resolve(package.parent.name)
    parsed = {RENAMED.get(name, name): value for name, value in said["parsed"].items()}
    assert parsed.pop("model_path") == "m"
    assert {name: release.default(name) for name in parsed} == parsed


def as_read(flag: Flag) -> dict[str, object]:
    options = [flag.options]
    if flag.action == "boolean":
        options = [(option, "--no-" + option[2:]) for option in flag.options]
    return {
        "options": [option for group in options for option in group],
        "dest": flag.dest,
        "class": CLASSES[flag.action],
        "type": flag.type,
        "nargs": 0 if flag.action in ("store_true", "boolean") else flag.nargs,
        "const": True if flag.action in ("store_true", "deprecated_true") else flag.const,
        "choices": comparable(flag.choices),
        "default": "==SUPPRESS==" if flag.suppressed else flag.default,
        "required": flag.required,
        "new_flag": flag.new_flag,
        "error": flag.error,
    }


def as_registered(action: dict[str, object]) -> dict[str, object]:
    dest, kind = action["dest"], action["type"]
    return {
        **action,
        "dest": RENAMED.get(dest, dest),
        "type": TYPES.get(kind, kind),
        "choices": comparable(action["choices"]),
    }


def comparable(choices: object) -> object:
    """Choices without their order: some releases register a set."""
    return None if choices is None else sorted(choices, key=str)


SERVER_ARGS = """
import dataclasses
from sglang.srt.choices import BACKENDS

@dataclasses.dataclass
class ServerArgs:
    model_path: str
    tp_size: int = 1
    backend: str = "auto"

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True)
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--backend", choices=["auto"] + BACKENDS, default=ServerArgs.backend)
        parser.add_argument("--old", action=DeprecatedStoreConstAction, dest="backend", const_value="a",
                            new_flag="--backend", help="Deprecated. Use --backend.")

    @classmethod
    def from_cli_args(cls, args):
        args.tp_size = args.tensor_parallel_size
        return cls(**vars(args))
"""


@pytest.fixture
def package(tmp_path):
    """Make the smallest SGLang."""
    package = tmp_path / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "srt" / "server_args.py").write_text(SERVER_ARGS)
    (package / "srt" / "choices.py").write_text('BACKENDS = ["a"]\nBACKENDS.append("b")\n')
    return package


def test_names_defaults_and_choices_are_followed_across_modules(package):
    assert read_flags(package) == [
        Flag(dest="model_path", options=("--model-path", "--model"), required=True),
        Flag(dest="tp_size", options=("--tensor-parallel-size", "--tp-size"), type="int", default=1),
        Flag(dest="backend", options=("--backend",), choices=("auto", "a", "b"), default="auto"),
        Flag(
            dest="backend",
            options=("--old",),
            action="deprecated_const",
            const="a",
            nargs=0,
            new_flag="--backend",
            note="Deprecated. Use --backend.",
        ),
    ]


def test_a_value_that_only_running_tells_is_refused_not_guessed(package):
    (package / "srt" / "choices.py").write_text("import os\nBACKENDS = os.listdir('/')\n")
    with pytest.raises(SourceError, match="--backend"):
        read_flags(package)


def test_a_list_that_grows_on_some_machines_keeps_what_all_have(package):
    (package / "srt" / "choices.py").write_text('BACKENDS = ["a"]\nif on_amd:\n    BACKENDS.append("b")\n')
    assert read_flags(package)[2].choices == ("auto", "a")


@pytest.mark.parametrize("text", ["", "class ServerArgs:\n    x: int = 1\n", "def ("])
def test_another_layout_is_an_error(package, text):
    (package / "srt" / "server_args.py").write_text(text)
    with pytest.raises(SourceError):
        read_flags(package)


def test_no_sglang_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="server_args"):
        read_flags(tmp_path)
