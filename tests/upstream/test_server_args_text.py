"""The start-up banner, read without running it."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.upstream import server_args_text

LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), LITERALS, max_size=6)


@given(FIELDS)
def test_what_python_prints_comes_back(fields: dict[str, Any]) -> None:
    """The dataclass repr of releases up to 0.5.18, the dict of later ones."""
    shown = "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in fields.items()) + ")"
    for text, is_dict in ((f"server_args={shown}", False), (f"server_args={fields!r} ", True)):
        banner = server_args_text.parse(text)
        assert banner is not None
        assert banner.values == fields
        assert banner.complete
        assert banner.is_dict is is_dict


class Mode(Enum):
    NULL = "null, (or [none"


@dataclasses.dataclass
class Config:
    name: str = "it's, [a) {nested"
    sizes: tuple[int, ...] = (1, 2)


@dataclasses.dataclass
class ServerArgs:
    model_path: str = "/models/a 'quoted', path"
    config: Config = dataclasses.field(default_factory=Config)
    mode: Mode = Mode.NULL
    handler: object = print
    lora_paths: Any = dataclasses.field(default_factory=lambda: [Config()])
    port: int = 30000


def test_values_that_are_no_literals_are_named() -> None:
    banner = server_args_text.parse(f"server_args={ServerArgs()!r}")
    assert banner is not None
    assert banner.values == {"model_path": "/models/a 'quoted', path", "port": 30000}
    assert banner.opaque == ("config", "mode", "handler", "lora_paths")
    assert banner.fields() == ["model_path", "port", "config", "mode", "handler", "lora_paths"]


def test_a_configuration_of_cuda_graphs_is_the_dict_of_server_info() -> None:
    """As 0.5.16 prints it; a repr with anything else inside stays an object."""
    phases = "decode=PhaseConfig(backend='full', bs=[1, 2]), prefill=PhaseConfig(backend='disabled')"
    banner = server_args_text.parse(f"server_args=ServerArgs(cuda_graph_config=CudaGraphConfig({phases}))")
    assert banner is not None
    assert banner.values["cuda_graph_config"] == {
        "decode": {"backend": "full", "bs": [1, 2]},
        "prefill": {"backend": "disabled"},
    }
    other = server_args_text.parse("server_args={'cuda_graph_config': CudaGraphConfig(decode=open('/x'))}")
    assert other is not None
    assert other.opaque == ("cuda_graph_config",)


def test_a_banner_cut_off_gives_what_is_there() -> None:
    banner = server_args_text.parse("server_args=ServerArgs(model_path='/m', tp_size=8, served_model_na")
    assert banner is not None
    assert banner.values == {"model_path": "/m", "tp_size": 8}
    assert not banner.complete


@given(st.text(alphabet="()[]{}<>,='\"\\ ab1:", max_size=60))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    assert server_args_text.parse("server_args={" + text) is not None
    assert server_args_text.parse("server_args=ServerArgs(" + text) is not None


def test_no_banner() -> None:
    assert server_args_text.parse("server_args=None") is None


def test_nothing_is_run() -> None:
    banner = server_args_text.parse(
        "server_args={'a': __import__('os').system('exit 1'), 'b': [x for x in ()]}"
    )
    assert banner is not None
    assert banner.values == {}
    assert banner.opaque == ("a", "b")
