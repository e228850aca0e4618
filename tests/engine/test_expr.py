"""Conditions: what is allowed, what they come to, and what they rest on."""

from __future__ import annotations

import itertools

import pytest

from sgdoctor.engine.expr import Condition, ExprError, Truth, compile_condition
from sgdoctor.engine.expr_tree import UNKNOWN
from sgdoctor.facts import Facts
from sgdoctor.vocabulary import FactSpec, FieldSpec, Vocabulary

NAMES = Vocabulary(
    {
        "gpu.count": FactSpec("int", "GPUs"),
        "gpu.name": FactSpec("str", "their name"),
        "gpu.capability": FactSpec("version", "compute capability", nullable=True),
        "tp.size": FactSpec("int", "as written", nullable=True),
        "mem.fraction": FactSpec("float", "of the memory"),
        "moe.runner": FactSpec("str", "runner", nullable=True),
        "log.died": FactSpec("bool", "the server died"),
        "lora": FactSpec("bool", "as written", nullable=True),
        "release": FactSpec("version", "release"),
        "other.release": FactSpec("version", "another"),
        "flags": FactSpec("strings", "flags"),
        "block": FactSpec("ints", "block shape", nullable=True),
        "gpus": FactSpec(
            "records",
            "each GPU",
            fields={"memory": FieldSpec("int"), "capability": FieldSpec("version", nullable=True)},
        ),
    }
)
KNOWN = {
    "gpu.count": 4,
    "gpu.name": "NVIDIA H200",
    "gpu.capability": "9.0",
    "tp.size": None,
    "mem.fraction": 0.9,
    "moe.runner": "triton",
    "log.died": False,
    "release": "0.5.10.post1",
    "flags": ["--tp", "--foo"],
    "block": [128, 128],
    "gpus": [{"memory": 80, "capability": "9.0"}, {"memory": 48, "capability": None}],
}


def facts(**changed: object) -> Facts:
    """Return the known facts above, with others in their place (`gpu_count=None` is written gpu__count)."""
    found = Facts(NAMES)
    for name, value in {**KNOWN, **{key.replace("__", "."): value for key, value in changed.items()}}.items():
        found.set(name, value, source="assume", place="test")
    return found


def condition(text: str) -> Condition:
    return compile_condition(text, NAMES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("gpu.count == 4", True),
        ("2 < gpu.count <= 4", True),
        ("gpu.count in [1, 2]", False),
        ("gpu.count not in (1, 2)", True),
        (
            "gpu.count * 2 - 1 == 7 and gpu.count / 8 == 0.5 and gpu.count // 3 == 1 and gpu.count % 3 == 1",
            True,
        ),
        ("mem.fraction > 0 and -gpu.count < 0", True),
        ("not log.died", True),
        ("moe.runner == 'triton'", True),
        ("tp.size is None and tp.size == None and not (tp.size is not None)", True),
        ("tp.size == 8", False),
        ("lora == True or gpu.count == 4", True),
        ('matches(gpu.name, "H[0-9]+$")', True),
        ('"--tp" in flags', True),
        ("len(flags) == 2 and len(gpus) == 2", True),
        ("block == [128, 128]", True),
        ("flags != []", True),
        ('any(matches(flag, "^--f") for flag in flags)', True),
        ("all(g.memory > 40 for g in gpus)", True),
        ('any(g.capability is None or g.capability < version("8.0") for g in gpus)', True),
        ("any(any(g.memory > h.memory for h in gpus) for g in gpus)", True),
        # Versions go by PEP 440: a post release follows its release, and 0.5.10 follows 0.5.9.
        ('release > version("0.5.10") and release < version("0.5.11") and release > version("0.5.9")', True),
        ('gpu.capability in [version("9"), version("10.0")]', True),
        ('matches(release, "post")', True),
        ("True", True),
    ],
)
def test_known_facts_give_what_python_gives(text, value):
    assert condition(text).evaluate(facts()).value is value


def test_a_local_part_makes_a_version_a_later_one():
    rocm = facts(release="3.6.0+rocm7")
    assert (
        condition('release > version("3.6.0") and release != version("3.6.0")').evaluate(rocm).value is True
    )


def test_a_condition_may_take_several_lines_with_comments():
    text = "gpu.count == 4  # a node\n  and (log.died\n       or moe.runner == 'triton')\n"
    assert condition(text).evaluate(facts()).value is True


def test_what_is_known_decides_though_the_rest_is_not():
    assert condition("lora == True and gpu.count == 8").evaluate(facts()) == Truth(
        False, frozenset({"gpu.count"})
    )
    assert condition("lora == True or gpu.count == 4").evaluate(facts()) == Truth(
        True, frozenset({"gpu.count"})
    )
    assert condition("other.release > release and log.died").evaluate(facts()).value is False


def test_an_undecided_condition_names_what_is_lacking_and_nothing_else():
    truth = condition("gpu.count == 4 and lora == True and other.release == release").evaluate(facts())
    assert truth == Truth(None, missing=frozenset({"lora", "other.release"}))


def test_a_value_rests_on_the_facts_that_decided_it():
    truth = condition("gpu.count == 8 or log.died or gpu.name == 'NVIDIA H200'").evaluate(facts())
    assert truth == Truth(True, frozenset({"gpu.name"}))
    truth = condition("gpu.count == 4 and not log.died").evaluate(facts())
    assert truth == Truth(True, frozenset({"gpu.count", "log.died"}))


def test_the_names_of_a_condition_stand_in_its_order():
    assert condition("log.died or gpu.count == 1 or log.died").names == ("log.died", "gpu.count")


def test_a_pattern_that_is_none_is_an_error_when_it_is_needed():
    bad = condition("log.died and matches(gpu.name, '(?=x)')")
    assert bad.patterns == ("(?=x)",)
    assert bad.evaluate(facts()).value is False
    with pytest.raises(ValueError, match="invalid perl operator"):
        bad.evaluate(facts(log__died=True))


def test_a_version_that_is_none_counts_as_unknown():
    truth = condition('release >= version("0.5.10")').evaluate(facts(release="built from source"))
    assert truth == Truth(None, missing=frozenset({"release"}))


def test_a_field_that_a_record_lacks_is_unknown():
    partly = facts(gpus=[{"memory": 80}, {"capability": "9.0"}])
    assert condition("any(g.memory == 80 for g in gpus)").evaluate(partly).value is True
    assert condition("all(g.memory == 80 for g in gpus)").evaluate(partly).missing == {"gpus"}


def test_an_empty_list_has_none_and_has_all():
    empty = facts(gpus=[])
    assert condition("any(g.memory > 0 for g in gpus)").evaluate(empty) == Truth(False, frozenset({"gpus"}))
    assert condition("all(g.memory > 0 for g in gpus)").evaluate(empty).value is True


def test_a_division_by_zero_is_an_error_unless_something_unknown_might_have_kept_it_away():
    none = facts(gpu__count=0)
    with pytest.raises(ZeroDivisionError):
        condition("8 / gpu.count > 1").evaluate(none)
    assert condition("gpu.count != 0 and 8 / gpu.count > 1").evaluate(none).value is False
    assert condition("lora == True and 8 / gpu.count > 1").evaluate(none) == Truth(
        None, missing=frozenset({"lora"})
    )


def test_nothing_takes_unknown_for_false():
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(UNKNOWN)


THREE = (True, False, None)


def kleene(text: str, *values: bool | None) -> bool | None:
    names = Vocabulary({name: FactSpec("bool", name) for name in "pqr"})
    given = Facts(names)
    for name, value in zip("pqr", values, strict=True):
        if value is not None:
            given.set(name, value, source="assume", place="test")
    return compile_condition(text, names).evaluate(given).value


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("not not p", "p"),
        ("p and q", "q and p"),
        ("p or q", "q or p"),
        ("not (p and q)", "not p or not q"),
        ("not (p or q)", "not p and not q"),
        ("p and (q or r)", "(p and q) or (p and r)"),
        ("p or (q and r)", "(p or q) and (p or r)"),
        ("p and (q and r)", "(p and q) and r"),
        ("p or (p and q)", "p"),
    ],
)
def test_the_laws_of_three_valued_logic_hold(left, right):
    for values in itertools.product(THREE, repeat=3):
        assert kleene(left, *values) is kleene(right, *values), values


def test_unknown_is_no_truth_value():
    assert kleene("p or not p", None, True, True) is None
    assert kleene("p and not p", None, True, True) is None
    assert kleene("p == p", None, True, True) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpu.cuont == 4", "unknown fact gpu.cuont; did you mean gpu.count?"),
        ("lora == true", "unknown fact true; did you mean True?"),
        ("nothing.like.it", "unknown fact nothing.like.it"),
        ("gpu.count == '4'", "compares int with str"),
        ("gpu.count == True", "compares int with bool"),
        ("gpu.count in ['4']", "looks for int in a list of str"),
        ("gpu.count in [1, 'a']", "mixed types"),
        ("gpu.name in 'NVIDIA'", "matches(...)"),
        ("gpu.count in 4", "takes a list"),
        ("gpu.name < 'NVIDIA'", "`<` takes int or float or version, and this is str"),
        ("gpu.count", "compare it with something"),
        ("not gpu.count", "compare it with something"),
        ("lora", "write `lora == True`, or guard it"),
        ("gpu.count is None", "gpu.count is never null"),
        ("gpu.count is 4", "use `==`"),
        ("release >= '0.5.10'", "compare it with version"),
        ("release == 0.5", "compare it with version"),
        ('release in ["0.5.10"]', 'list version("...")'),
        ('gpu.name == version("1.0")', "is a version"),
        ('version("latest") < release', "not a PEP 440 version"),
        ("version(gpu.name) < release", "string literal"),
        ("tp.size > 4", "guard it: `tp.size is not None and ...`"),
        ("tp.size + 1 == 4", "guard it"),
        ("tp.size is not None or tp.size > 4", "guard it"),
        ("(tp.size is not None and log.died) or tp.size > 4", "guard it"),
        ("gpu.capability > version('9.0')", "guard it"),
        ("len(block) == 2", "guard it"),
        ("128 in block", "guard it"),
        ("matches(moe.runner, 'x')", "guard it"),
        ("any(g.capability > version('9') for g in gpus)", "g.capability may be null"),
        ("any(g.mem > 1 for g in gpus)", "the fields are capability, memory"),
        ("any(g for g in gpus)", "name a field"),
        ("any(flag.x == 1 for flag in flags)", "it has no fields"),
        ("any(gpu.memory > 1 for gpu in gpus)", "gpu has a meaning already"),
        ("any(g.memory > 1 for g in gpus if log.died)", "joining conditions with `and`"),
        ("any(gpus)", "write any(condition for x in list)"),
        ("any(x == 1 for x in gpu.count)", "any() takes"),
        ("len(gpu.name) > 3", "len() takes"),
        ("open('x') == 1", "unknown function"),
        ("gpu.name.startswith('N')", "unknown function"),
        ("matches(gpu.name)", "wrong arguments"),
        ("matches(gpu.name, gpu.name)", "string literal"),
        ("gpu.count ** 2 == 4", "arithmetic of conditions"),
        ("gpu.name + 'x' == 'y'", "`+` takes int or float"),
        ("flags[0] == 'x'", "Subscript is not part"),
        ("(lambda: True)()", "unknown function"),
        ("1 if log.died else 2", "IfExp is not part"),
        ("gpu.name == b'x'", "bytes literals"),
        ("gpu.name == f'{gpu.count}'", "JoinedStr is not part"),
        ("(1).real == 1", "have dots"),
        ("~gpu.count == 1", "stand before a value"),
        ("gpus == [[1]]", "a list of lists"),
        ("gpu.count in [gpu.count]", "literals only"),
        ("gpu.count =", "not an expression"),
        ("matches(gpu.name, '\\d')", "not an expression: invalid escape"),
        ("", "not an expression"),
        ("log.died\0", "not an expression"),
        ("gpu.count == 3j", "complex literals"),
        ("not " * 900 + "log.died", "nested too deep"),
        ("gpu.count == 4 or " * 400 + "log.died", "longer than"),
        ("(" * 1500 + "log.died" + ")" * 1500, "not an expression"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_rule_is_loaded(text, reason):
    with pytest.raises(ExprError) as error:
        condition(text)
    assert reason in error.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "tp.size is not None and tp.size > 4",
        "tp.size is None or tp.size > 4",
        "not (tp.size is None or log.died) and tp.size > 4",
        "not (not (tp.size is not None) or tp.size > 4)",
        "tp.size is not None and (log.died or tp.size > 4)",
        "log.died and tp.size != None and gpu.count == 4 and tp.size + 1 > 4",
        "(tp.size == 8 or tp.size in [2, 4]) and tp.size > 4",
        "tp.size not in [2, 4] or tp.size > 2",
        "lora is not None and lora",
        "any(g.capability is not None and g.capability > version('9') for g in gpus)",
        "tp.size is not None and any(g.memory > tp.size for g in gpus)",
    ],
)
def test_a_guard_makes_order_and_arithmetic_of_a_nullable_fact_safe(text):
    assert condition(text).evaluate(facts()).value in THREE


def test_an_error_draws_the_place():
    with pytest.raises(ExprError) as error:
        condition("log.died\nand 'é' == gpu.nmae")
    assert error.value.show() == (
        "and 'é' == gpu.nmae\n           ^ unknown fact gpu.nmae; did you mean gpu.name?"
    )
