"""moe.*: the runner of the experts, their shape on one GPU, and the config file that their kernel loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

from sgdoctor.facts import Facts
from sgdoctor.upstream import (
    catalogue,
    expert_weights,
    moe_config,
    moe_files,
    moe_places,
    moe_runner,
    moe_shapes,
)
from sgdoctor.upstream.architectures import ARCHITECTURES
from sgdoctor.upstream.asked_view import Open, View
from sgdoctor.upstream.catalogue import Release
from sgdoctor.upstream.config_problem import Gpu
from sgdoctor.upstream.expert_weights import Stored
from sgdoctor.upstream.moe_config import Listing, Lookup
from sgdoctor.upstream.moe_places import OnHost

SHAPE = (
    "moe.local_experts",
    "moe.local_intermediate_size",
    "moe.topk",
    "moe.dtype",
    "moe.block_shape",
)
FILES = ("moe.up.expected_file", "moe.down.expected_file")
LOOKUP = (
    "moe.directories",
    "moe.up.source",
    "moe.up.triton",
    "moe.up.other",
    "moe.up.path",
    "moe.down.source",
    "moe.down.triton",
    "moe.down.path",
    "moe.lookup_error",
)
CONTENT = ("moe.block_m_mismatch", "moe.config_problems", "moe.config_warnings", "moe.config_remarks")
_PLACES = ("moe.config_root", "moe.bundled_source")

# Flags that lay out or serve the experts otherwise; with one of them set nothing is said.
_OWN_WAYS = ("kt_weight_path", "elastic_ep_backend", "enable_paged_experts", "enable_expert_pack")


def derive(facts: Facts, on_host: OnHost | None = None) -> None:
    """Derive every moe.* that no source told; what cannot be told says why (``on_host``: as in derive)."""
    moe_places.misplaced(facts)
    if facts.value("model.is_moe") is False:
        facts.derive("moe.config_matters", False, ["model.is_moe"])
        for name in ("moe.runner", *SHAPE, *FILES, *LOOKUP, *CONTENT, *_PLACES):
            facts.set_unknown(name, "the model has no routed experts")
        return
    experts = _Experts(facts, on_host)
    experts.settle(SHAPE, experts.shape)
    experts.settle(("moe.runner",), experts.runner)
    experts.settle(("moe.config_matters",), experts.matters)
    experts.settle(FILES, experts.files)
    experts.settle(_PLACES, experts.places)
    experts.settle(LOOKUP, experts.lookup)
    experts.settle(CONTENT, experts.content)


class _Experts:
    """The experts of one deployment, derived step by step; a step notes the facts it used."""

    def __init__(self, facts: Facts, on_host: OnHost | None) -> None:
        self.facts = facts
        self.on_host = on_host
        self.inputs: list[str] = []

    def settle(self, names: Iterable[str], step: Callable[[], dict[str, Any]]) -> None:
        """Derive the facts that ``step`` returns; those of ``names`` it does not return are unknown."""
        self.inputs = []
        names = list(names)
        try:
            values = step()
        except Open as undecided:
            for name in names:
                self.facts.set_unknown(name, str(undecided), undecided.missing)
            return
        for name in names:
            if name in values:
                self.facts.derive(name, values[name], [each for each in self.inputs if each != name])

    # --- what the steps read ---------------------------------------------------------------------------

    def use(self, name: str) -> Any:
        """Return the value of a fact that must be known."""
        if not self.facts.known(name):
            raise Open(f"{name} is not known", (name,))
        self._note(name)
        return self.facts.value(name)

    def _note(self, *names: str) -> None:
        self.inputs += [name for name in names if name not in self.inputs]

    def _release(self) -> Release:
        version = self.use("sglang.version")
        release = catalogue.resolve(version)
        if release is None:
            raise Open(f"SGLang {version} is no release that sgdoctor knows", ("sglang.version",))
        return release

    def _flag(self, view: View, dest: str, default: Any) -> Any:
        """Return a flag as it is in effect: what a server said, else what was asked, else the default."""
        if not view.release.has(dest):
            return default
        value = view.effective(dest)
        self._note(*view.inputs)
        return default if value is None else value

    def _rarely_set(self, view: View, dest: str) -> bool:
        """Whether a flag that is off by default is known to be on."""
        name = f"arg.{dest}"
        if self.facts.known(name):
            return self.facts.value(name) not in (None, False, 0, "", "none")
        try:
            return view.is_set(dest)
        except Open:
            return False

    def _view(self) -> View:
        view = View(self.facts, self._release(), {})
        for dest in _OWN_WAYS:
            if self._rarely_set(view, dest):
                raise Open(f"--{dest.replace('_', '-')} serves the experts in a way of its own")
        return view

    def _model(self, view: View) -> moe_shapes.Model:
        architecture = self.use("model.architecture")
        if architecture not in ARCHITECTURES:
            raise Open(f"how SGLang builds the experts of {architecture} is not known to sgdoctor")
        needed = ("model.experts", "model.experts_per_token", "model.moe_intermediate_size")
        experts, per_token, width = (self.use(name) for name in needed)
        if not (experts and per_token and width):
            raise Open("config.json does not give the experts' number, width or top k", needed)
        requested = self._flag(view, "quantization", None)
        stored = expert_weights.in_use(requested, self._checkpoint())
        return moe_shapes.Model(
            architecture=architecture,
            experts=experts,
            per_token=per_token,
            width=width,
            shared=self.facts.value("model.shared_experts") or 0,
            shared_width=self.facts.value("model.shared_intermediate_size"),
            quantization=stored.method,
            weights=stored.weights,
            block=stored.block,
        )

    def _checkpoint(self) -> Stored:
        method = self.use("model.checkpoint_quantization")
        block = self.facts.value("model.weight_block_size")
        return Stored(
            method,
            self.use("model.expert_weights"),
            (block[0], block[1]) if block else None,
            self.facts.value("model.quantization_group_size"),
        )

    def _layout(self, view: View) -> moe_shapes.Layout:
        vendor, capability = self._gpu()
        return moe_shapes.Layout(
            release=Version(view.release.version),
            vendor=vendor,
            capability=capability,
            tp=self._flag(view, "tp_size", 1),
            ep=self._flag(view, "ep_size", 1),
            moe_dp=self._flag(view, "moe_dp_size", 1),
            redundant=self._flag(view, "ep_num_redundant_experts", 0),
            a2a=self._flag(view, "moe_a2a_backend", "none"),
            fusion_disabled=self._flag(view, "disable_shared_experts_fusion", False),
            fusion_enforced=self._rarely_set(view, "enforce_shared_experts_fusion"),
            batch_overlap=self._rarely_set(view, "enable_two_batch_overlap")
            or self._rarely_set(view, "enable_single_batch_overlap"),
            float32=self._float32(view),
        )

    def _float32(self, view: View) -> bool:
        dtype = self.facts.value("arg.dtype") or self.facts.value("asked.dtype")
        return view.release.has("dtype") and dtype in ("float32", "float")

    def _gpu(self) -> tuple[str, Version | None]:
        vendor = self.facts.value("gpu.vendor")
        capability = self.facts.value("gpu.compute_capability")
        if vendor is not None:
            self._note("gpu.vendor")
        if capability is None:
            return vendor or "", None
        self._note("gpu.compute_capability")
        return vendor or "", Version(capability)

    # --- the steps -------------------------------------------------------------------------------------

    def shape(self) -> dict[str, Any]:
        """Return E, N, topk and the name's dtype and block."""
        view = self._view()
        model, layout = self._model(view), self._layout(view)
        if model.weights == "int4_awq" and self._run(view, model, layout) == "triton":
            model = msgspec.structs.replace(model, weights="int4_weight")
        found = moe_shapes.on_one_gpu(model, layout)
        block = found.shape.block_shape
        return {
            "moe.local_experts": found.shape.experts,
            "moe.local_intermediate_size": found.shape.width,
            "moe.topk": found.topk,
            "moe.dtype": found.shape.dtype,
            "moe.block_shape": list(block) if block else None,
        }

    def runner(self) -> dict[str, Any]:
        """Return the runner of the routed experts."""
        view = self._view()
        model = self._model(view)
        return {"moe.runner": self._run(view, model, self._layout(view))}

    def _run(self, view: View, model: moe_shapes.Model, layout: moe_shapes.Layout) -> str:
        if model.quantization == "fp8" and view.environment("SGLANG_CUTLASS_MOE"):
            raise Open("SGLANG_CUTLASS_MOE chooses the runner", ("arg.moe_runner_backend",))
        settled = self.facts.known("arg.moe_runner_backend")
        backend = self._flag(view, "moe_runner_backend", "auto")
        switch = self.facts.value("env.SGLANG_ENABLE_JIT_DEEPGEMM")
        return moe_runner.runner(
            model,
            moe_runner.Request(
                release=layout.release,
                vendor=layout.vendor,
                capability=layout.capability,
                backend=backend,
                settled=settled,
                a2a=layout.a2a,
                width=moe_shapes.local_width(model, layout) if layout.a2a == "none" else None,
                hidden=self.facts.value("model.hidden_size"),
                group=self.facts.value("model.quantization_group_size"),
                deep_gemm_off=isinstance(switch, str) and switch.lower() in ("0", "false", "no", "off"),
            ),
        )

    def matters(self) -> dict[str, Any]:
        """Return whether a config file would be read and used."""
        if not self.facts.known("moe.runner") and not self._deterministic():
            raise Open("the runner of the experts is not known", ("moe.runner",))
        triton = self.facts.known("moe.runner") and self.use("moe.runner") == "triton"
        used = triton and not self._deterministic() and not self._never_run()
        return {"moe.config_matters": used}

    def _never_run(self) -> bool:
        """Whether no config lets the kernel run: a GPU's share is no whole blocks, or the GPU has no FP8.

        The first ends the start in create_weights (fp8.py, blockwise_int8.py); of the second Triton 3.5.1,
        3.6.0 and 3.8.0 say "type fp8e4nv not supported in this architecture" below compute capability 8.9.
        """
        width = self.facts.value("moe.local_intermediate_size")
        if width and any(width % each for each in self.facts.value("moe.block_shape") or ()):
            return True
        capability = self._gpu()[1]
        too_old = capability is not None and capability < Version("8.9")
        return too_old and bool(self.facts.value("moe.dtype") == "fp8_w8a8")

    def _deterministic(self) -> bool:
        view = View(self.facts, self._release(), {})
        return bool(self._flag(view, "enable_deterministic_inference", False))

    def files(self) -> dict[str, Any]:
        """Return the two names that are looked for."""
        block = self.use("moe.block_shape")
        shape = moe_config.Shape(
            experts=self.use("moe.local_experts"),
            width=self.use("moe.local_intermediate_size"),
            dtype=self.use("moe.dtype"),
            block_shape=(block[0], block[1]) if block else None,
            per_channel=self._per_channel(),
        )
        device = self.use("gpu.name")
        names = (moe_config.file_name(device, shape, down=down) for down in (False, True))
        return dict(zip(FILES, names, strict=True))

    def _per_channel(self) -> bool:
        view = self._view()
        requested = self._flag(view, "quantization", None)
        return expert_weights.in_use(requested, self._checkpoint()).weights in ("fp8_channel", "int8_channel")

    def _listing(self) -> Listing:
        listing, used = moe_places.listing(self.facts, self._release(), self.on_host)
        self._note(*used)
        return listing

    def places(self) -> dict[str, Any]:
        """Return the folder that is searched, and what the packaged one alone would give."""
        root, used = moe_places.root(self.facts, self._release())
        self._note(*used)
        values = {"moe.config_root": root}
        if self.facts.value("triton.version") is not None and self.facts.known(FILES[0]):
            values["moe.bundled_source"] = self._bundled()
        return values

    def _bundled(self) -> str:
        release = self._release()
        up, triton = self.use(FILES[0]), self.use("triton.version")
        listing, used = moe_places.packaged(self.facts, release)
        self._note(*used)
        return moe_config.look_up_files(Version(release.version), triton, up, up, listing).up.source

    def _looked_up(self) -> tuple[Lookup, Listing, Version]:
        release = self._release()
        up, down = (self.use(name) for name in FILES)
        triton = self.use("triton.version")
        if triton is None:
            raise Open("Triton is not installed", ("triton.version",))
        listing, deterministic = self._listing(), self._deterministic()
        version = Version(release.version)
        found = moe_config.look_up_files(version, triton, up, down, listing, deterministic=deterministic)
        return found, listing, version

    def lookup(self) -> dict[str, Any]:
        """Return where both projections' configs come from."""
        found, listing, _ = self._looked_up()
        values: dict[str, Any] = {
            "moe.directories": list(found.directories),
            "moe.up.other": list(found.elsewhere),
            "moe.lookup_error": found.error,
        }
        for projection, each in (("up", found.up), ("down", found.down)):
            missing = each.source != "exact" and bool(found.directories)
            values[f"moe.{projection}.source"] = each.source
            values[f"moe.{projection}.triton"] = _version(each.triton)
            values[f"moe.{projection}.path"] = (
                listing.path(found.directories[0], each.file) if missing else None
            )
        if found.error is None and listing.on_disk and found.directories:
            values["moe.lookup_error"] = self._judged(found, listing).error
        return values

    def content(self) -> dict[str, Any]:
        """Return what is wrong with the files in use."""
        found, listing, _ = self._looked_up()
        for name, each in (("moe.up.source", found.up), ("moe.down.source", found.down)):
            if self.facts.value(name, each.source) != each.source:
                raise Open("the server found other files than are known here")
        judged = self._judged(found, listing)
        values: dict[str, Any] = {
            "moe.block_m_mismatch": judged.block_m_mismatch,
            "moe.config_problems": judged.of("error"),
            "moe.config_warnings": judged.of("warning"),
        }
        if judged.read:
            values["moe.config_remarks"] = judged.of("info")
        else:
            reason = "the config files are not on this machine"
            self.facts.set_unknown("moe.config_remarks", reason, ["sglang.path"])
        return values

    def _judged(self, found: Lookup, listing: Listing) -> moe_files.FileCheck:
        if not listing.on_disk:
            judged = moe_files.check_shipped(found)
            if judged is None:
                raise Open("the config files are not on this machine")
            return judged
        shape = moe_config.shape_of(found.up.file)
        if shape is None:
            raise Open(f"{found.up.file} is no name of a config file")
        try:
            release = Version(self._release().version)
            return moe_files.check(release, shape, found, gpu=self._file_gpu())
        except OSError as error:
            raise Open(f"a config file could not be read: {error}") from error

    def _file_gpu(self) -> Gpu:
        vendor, capability = self._gpu()
        return Gpu(vendor or None, capability, self.facts.value("gpu.shared_memory_bytes"))


def _version(folder: str | None) -> str | None:
    """Return what the vocabulary takes for a version; an odd folder's name is none."""
    try:
        return str(folder) if folder is not None and Version(folder) else None
    except InvalidVersion:
        return None
