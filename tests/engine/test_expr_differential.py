"""Conditions held against Python's own eval, over generated conditions and facts."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.engine.expr import Truth, compile_condition
from sgdoctor.facts import Facts
from sgdoctor.vocabulary import FactSpec, FieldSpec, Vocabulary

FIELDS = {"n": FieldSpec("int"), "s": FieldSpec("str"), "v": FieldSpec("version", nullable=True)}
NAMES = Vocabulary(
    {
        "i.a": FactSpec("int", ""),
        "i.b": FactSpec("int", ""),
        "f": FactSpec("float", ""),
        "b.a": FactSpec("bool", ""),
        "b.b": FactSpec("bool", ""),
        "s": FactSpec("str", ""),
        "v.a": FactSpec("version", ""),
        "v.b": FactSpec("version", ""),
        "o.i": FactSpec("int", "", nullable=True),
        "o.s": FactSpec("str", "", nullable=True),
        "o.v": FactSpec("version", "", nullable=True),
        "l": FactSpec("strings", ""),
        "k": FactSpec("ints", ""),
        "r": FactSpec("records", "", fields=FIELDS),
    }
)

integers = st.integers(-2, 3)
words = st.sampled_from(["", "a", "ab", "triton"])
versions = st.sampled_from(["0.5.9", "0.5.10", "0.5.10.post1", "0.5.10.dev1", "0.5.10+cu128", "9.0"])
records = st.fixed_dictionaries({"n": integers, "s": words, "v": st.none() | versions})
VALUES = {
    "int": integers,
    "float": st.sampled_from([0.0, 0.5, 2.0]),
    "bool": st.booleans(),
    "str": words,
    "version": versions,
    "strings": st.lists(words, max_size=3),
    "ints": st.lists(integers, max_size=3),
    "records": st.lists(records, max_size=3),
}
deployments = st.fixed_dictionaries(
    {
        name: st.none() | VALUES[spec.type] if spec.nullable else VALUES[spec.type]
        for name, spec in NAMES.specs.items()
    }
)

number_literals = integers.map(str) | st.sampled_from(["0.5", "2.0"])
numbers = st.recursive(
    st.sampled_from(["i.a", "i.b", "f", "len(l)", "len(r)"]) | number_literals,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda parts: f"({' '.join(parts)})"
    ),
    max_leaves=3,
)
orders = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
texts = words.map(repr) | st.just("s")
version_literals = versions.map(lambda text: f'version("{text}")')
version_values = st.sampled_from(["v.a", "v.b"]) | version_literals
guards = st.sampled_from(
    [
        "(o.i is not None and o.i {op} {number})",
        "(o.i is None or o.i {op} {number})",
        "(not (o.i is None) and {number} {op} o.i * 2)",
        "(o.v is not None and o.v {op} {version})",
        "(o.s is None or matches(o.s, 'a'))",
    ]
)
atoms = st.one_of(
    st.sampled_from(["b.a", "b.b", "True", "False", "o.i is None", "o.i == 2", "o.v != version('9')"]),
    st.sampled_from(
        ["o.s == s", "o.s in ['a', None]", "s in l", "i.a in k", "i.b not in [1, 2]", "l == ['a']"]
    ),
    st.sampled_from(["matches(s, '^a')", "v.a in [version('9'), version('0.5.10')]", "o.i in [1, 2]"]),
    st.tuples(numbers, orders, numbers).map(" ".join),
    st.tuples(numbers, orders, numbers, orders, numbers).map(" ".join),
    st.tuples(version_values, orders, version_values).map(" ".join),
    st.tuples(texts, st.sampled_from(["==", "!="]), texts).map(" ".join),
    st.builds(
        lambda form, op, number, version: form.format(op=op, number=number, version=version),
        guards,
        orders,
        numbers,
        version_values,
    ),
)
element_atoms = st.one_of(
    st.tuples(st.just("x.n"), orders, numbers).map(" ".join),
    st.sampled_from(["x.s == s", "x.s in l", "x.v is None", "x.v == v.a", "matches(x.s, 'a')"]),
    st.tuples(st.just("(x.v is not None and x.v"), orders, version_values.map(lambda text: f"{text})")).map(
        " ".join
    ),
)


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        inner.map(lambda text: f"not ({text})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
    )


def quantified(inner: st.SearchStrategy[str], loop: str) -> st.SearchStrategy[str]:
    elements = st.recursive(inner, joined, max_leaves=3)
    return st.tuples(st.sampled_from(["any", "all"]), elements).map(
        lambda parts: f"{parts[0]}({parts[1]} for {loop})"
    )


over_numbers = quantified(st.tuples(st.just("y"), orders, numbers).map(" ".join) | atoms, "y in k")
over_records = quantified(element_atoms | atoms | over_numbers, "x in r")
conditions = st.recursive(atoms | over_numbers | over_records, joined, max_leaves=6)


def store(values: dict[str, Any]) -> Facts:
    facts = Facts(NAMES)
    for name, value in values.items():
        facts.set(name, value, source="assume", place="test")
    return facts


def python(text: str, values: dict[str, Any]) -> Any:
    """Return what Python makes of the condition, facts being objects with attributes."""

    def plain(kind: str, value: Any) -> Any:
        if value is None:
            return None
        if kind == "records":
            return [
                SimpleNamespace(**{key: plain(FIELDS[key].type, part) for key, part in one.items()})
                for one in value
            ]
        return Version(value) if kind == "version" else value

    names: dict[str, Any] = {
        "version": Version,
        "matches": lambda text, pattern: bool(re.search(pattern, text)),
    }
    for name, value in values.items():
        family, _, rest = name.partition(".")
        filled = plain(NAMES.specs[name].type, value)
        if rest:
            setattr(names.setdefault(family, SimpleNamespace()), rest, filled)
        else:
            names[family] = filled
    return eval(text, names)  # noqa: S307 (what it is held against)


def outcome(text: str, values: dict[str, Any]) -> Any:
    try:
        return python(text, values)
    except ZeroDivisionError:
        return ZeroDivisionError


def ours(text: str, values: dict[str, Any]) -> Truth | type[ZeroDivisionError]:
    try:
        return compile_condition(text, NAMES).evaluate(store(values))
    except ZeroDivisionError:
        return ZeroDivisionError


@given(conditions, deployments)
def test_with_all_facts_known_the_result_is_pythons_own(text, values):
    found = ours(text, values)
    assert (found.value if isinstance(found, Truth) else found) == outcome(text, values)


@given(conditions, deployments, st.sets(st.sampled_from(sorted(NAMES.specs))))
def test_an_unknown_fact_never_turns_the_result_into_its_opposite(text, values, hidden):
    whole = outcome(text, values)
    assume(whole is not ZeroDivisionError)
    partly = ours(text, {name: value for name, value in values.items() if name not in hidden})
    assert isinstance(partly, Truth)
    assert partly.value in (None, whole)
    assert partly.missing <= hidden
    assert (partly.value is None) is bool(partly.missing)


@given(conditions, deployments)
def test_the_facts_that_a_result_rests_on_suffice_for_it(text, values):
    whole = ours(text, values)
    assume(isinstance(whole, Truth))
    again = ours(text, {name: value for name, value in values.items() if name in whole.facts})
    assert isinstance(again, Truth)
    assert again.value is whole.value
