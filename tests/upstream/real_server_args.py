"""Run in a child process: prints what the ServerArgs of an unpacked SGLang really is, as JSON.

``python real_server_args.py FOLDER`` imports FOLDER/sglang's own ServerArgs, with every module that is not
installed (torch, triton, transformers, ...) and a few of SGLang's replaced by stand-ins that answer anything.
"""

from __future__ import annotations

import abc
import argparse
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import logging
import sys
import types

# Modules of SGLang that reckon with torch while they are imported, and are not needed here.
_SGLANG_STAND_INS = (
    "sglang.srt.configs",
    "sglang.srt.connector",
    "sglang.srt.distributed",
    "sglang.srt.platforms",
    "sglang.srt.utils.hf_transformers_patches",
    "sglang.srt.layers.attention.fla.utils",
    "sglang.kernels.ops.attention.fla.utils",
)
# Packages whose presence would make SGLang choose another platform.
_ABSENT = ("habana_frameworks", "intel_extension_for_pytorch", "mlx", "torch_musa", "torch_npu")


class _AnyClass(abc.ABCMeta):
    """The class of classes made from a stand-in."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Anything(metaclass=_AnyClass):
    """Stands for any value, class, decorator and function."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *args, **kwargs):
        decorates = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if decorates else _Anything()

    def __mro_entries__(self, bases):
        return (_Anything,)

    def __init_subclass__(cls, **kwargs):
        pass

    def __iter__(self):
        return iter(())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def __bool__(self):
        return False

    def __len__(self):
        return 0

    def __int__(self):
        return 0

    __index__ = __int__

    def __float__(self):
        return 0.0

    def __fspath__(self):
        return "/nowhere"

    def __lt__(self, other):
        return False

    def __gt__(self, other):
        return True

    __le__, __ge__ = __lt__, __gt__

    def __contains__(self, item):
        return False

    def __instancecheck__(self, instance):
        return False

    __subclasscheck__ = __instancecheck__

    def __or__(self, other):
        return self

    __ror__ = __and__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __or__
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __rpow__ = __getitem__ = __or__

    def __neg__(self):
        return self

    def __setitem__(self, key, value):
        pass


class _StandIn(types.ModuleType):
    __path__ = ()
    __version__ = "99.0.0"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if self.__name__ == "torch" and name in ("hpu", "musa", "npu"):
            raise AttributeError(name)
        if name == "version":
            return types.SimpleNamespace(hip=None, cuda="13.0") if self.__name__ == "torch" else "99.0.0"
        setattr(self, name, _Anything())
        return self.__dict__[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for the modules that ``wanted`` says."""

    def __init__(self, wanted):
        self.wanted = wanted

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 (the import system's signature)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if self.wanted(name) else None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def _install_stand_ins():
    def of_sglang(name):
        return any(name == module or name.startswith(f"{module}.") for module in _SGLANG_STAND_INS)

    def missing(name):
        return name.split(".")[0] not in ("sglang", *_ABSENT)

    real_version = importlib.metadata.version

    def version(name):
        try:
            return real_version(name)
        except importlib.metadata.PackageNotFoundError:
            return "99.0.0"

    importlib.metadata.version = version
    sys.meta_path.insert(0, _Finder(of_sglang))
    sys.meta_path.append(_Finder(missing))


def plain(value):
    if value is argparse.SUPPRESS:
        return "==SUPPRESS=="
    if hasattr(value, "value") and hasattr(value, "name"):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=str)
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _action(action):
    kind = getattr(action.type, "__name__", None)
    return {
        "options": action.option_strings,
        "dest": action.dest,
        "class": type(action).__name__,
        "type": kind if kind in ("int", "float") or callable(action.type) else None,
        "nargs": action.nargs,
        "const": plain(getattr(action, "const_value", action.const)),
        "choices": plain(action.choices),
        "default": plain(action.default),
        "required": action.required,
        "new_flag": getattr(action, "new_flag", None),
        "error": getattr(action, "error_message", None),
    }


def load(folder):
    """Return the ServerArgs of the SGLang in ``folder``, and an argparse parser with its flags."""
    sys.path.insert(0, folder)
    _install_stand_ins()
    logging.disable(logging.CRITICAL)
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return ServerArgs, parser


def main():
    server_args, parser = load(sys.argv[1])
    if dataclasses.is_dataclass(server_args):
        fields = [field.name for field in dataclasses.fields(server_args)]
    else:
        import msgspec

        fields = [field.name for field in msgspec.structs.fields(server_args)]
    actions = [_action(action) for action in parser._actions if action.dest != "help"]
    parsed = {name: plain(value) for name, value in vars(parser.parse_args(["--model-path", "m"])).items()}
    print(json.dumps({"actions": actions, "fields": fields, "parsed": parsed}))


if __name__ == "__main__":
    main()
