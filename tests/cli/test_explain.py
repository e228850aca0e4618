"""``sgdoctor explain``: a rule's page."""

from __future__ import annotations

import pytest

RULE = """\
code: CFG901
name: house-rule
title: A rule of the house
severity: info
impact: performance
confidence: medium
case: [M01, M02]
releases: ">=0.5.10,<0.5.14"
applies: model.is_moe
when: model.layers > 40
match: 'KV cache (?P<what>\\w+)'
message: "{model.layers} layers on {gpu.name|this GPU}."
why: |
  The first reason.

  The second.
recommend:
  - {set: --mem-fraction-static, value: 0.8}
  - {install: "kernels<0.10", note: "or newer than {triton.version|that}"}
verified: in this test
sources: [https://github.com/sgl-project/sglang/pull/5955]
tests:
  - {name: many layers, facts: {model.layers: 48}, expect: fail}
"""

PAGE = """\
CFG901  info  A rule of the house
house-rule: performance, confidence medium, case M01, M02

says      <model.layers> layers on <gpu.name>.

why       The first reason.

          The second.

where     model.is_moe
when      model.layers > 40
log has   KV cache (?P<what>\\w+)
          model.is_moe  the model has routed experts
          model.layers  number of layers

do        set --mem-fraction-static 0.8
          pip install 'kernels<0.10'
            (or newer than <triton.version>)

releases  >=0.5.10,<0.5.14
verified  in this test
sources   https://github.com/sgl-project/sglang/pull/5955
cases     fail: many layers
"""


def test_a_page_has_everything(sgdoctor, tmp_path):
    (tmp_path / "CFG901-house-rule.yaml").write_text(RULE)
    done = sgdoctor("explain", "CFG901", "--rules", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(PAGE)


@pytest.mark.parametrize("name", ["CFG101", "cfg101", "moe-config-missing"])
def test_a_rule_goes_by_code_and_name(sgdoctor, name):
    assert sgdoctor("explain", name).stdout.startswith("CFG101  warning  No tuned fused-MoE config")


def test_every_page_fits_into_80_columns_but_for_what_cannot_be_broken(sgdoctor):
    codes = [line.split()[0] for line in sgdoctor("rules", "list").stdout.splitlines() if line[:1].isupper()]
    assert "CFG101" in codes
    for code in codes[:: len(codes) // 8]:
        for line in sgdoctor("explain", code).stdout.splitlines():
            assert len(line) <= 80


def test_a_rule_file_that_cannot_be_used_is_2_with_a_caret(sgdoctor, tmp_path):
    (tmp_path / "CFG901-house-rule.yaml").write_text(RULE.replace("model.layers > 40", "model.layerz > 40"))
    done = sgdoctor("explain", "CFG901", "--rules", tmp_path)
    assert done.returncode == 2
    first, *caret = done.stderr.splitlines()
    assert "CFG901-house-rule.yaml:10: when: column 1: " in first
    assert "model.layers" in first
    assert any(line.startswith("^") for line in caret)
