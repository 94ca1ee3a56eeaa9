"""One grammar for names with arguments, and one text for equal calls."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustkpca.calls import Call, Value, complete, format_value, parse_value
from robustkpca.errors import BadValue, UnknownName

WORDS = st.from_regex(r"[a-z][a-z_.:/-]{0,8}", fullmatch=True).filter(
    lambda word: word not in {"true", "false", "none", "null", "inf", "nan", "infinity"}
)
SCALARS = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(),
    st.floats(allow_nan=False),
    st.fractions().filter(lambda fraction: fraction.denominator > 1),
    WORDS,
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)


def attack(
    model: object, *, steps: int = 20, size: float = 0.15, start: bool = True, loss: str = "ce", seed: int
) -> None:
    """Stands for anything that a call can name."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("1/3", Fraction(1, 3)),
        ("-1/3", Fraction(-1, 3)),
        ("true", True),
        ("False", False),
        ("none", None),
        ("null", None),
        ("lambda*mu", "lambda*mu"),
        ("[]", ()),
        ("[0,1]", (0, 1)),
        ("[0, [1,2], x]", (0, (1, 2), "x")),
    ],
)
def test_a_value_is_read_as_what_it_looks_like(text: str, value: Value) -> None:
    found = parse_value(text)
    assert (type(found), found) == (type(value), value)


@given(VALUES)
def test_a_value_that_is_written_is_read_back_the_same(value: Value) -> None:
    assert repr(parse_value(format_value(value))) == repr(value)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), VALUES, max_size=4))
def test_a_call_that_is_written_is_read_back_the_same(arguments: dict[str, Value]) -> None:
    call = Call("package/name", arguments)
    assert Call.parse(str(call)) == call


@pytest.mark.parametrize("text", ["pgd(b=2,a=1)", " pgd( a = 1 , b = 2 ) ", "pgd(a=1,b=2)"])
def test_spaces_and_order_do_not_change_the_text(text: str) -> None:
    assert str(Call.parse(text)) == "pgd(a=1,b=2)"


def test_empty_brackets_are_the_same_as_none() -> None:
    assert str(Call.parse("pgd()")) == "pgd"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a name"),
        ("(a=1)", "expected a name"),
        ("two words", "expected a name"),
        ("pgd(steps=3", "bracket is not closed"),
        ("pgd(steps=3)x", "bracket is not closed"),
        ("pgd(3)", "'3' is not of the form argument=value"),
        ("pgd(steps=)", "not of the form argument=value"),
        ("pgd(=3)", "not of the form argument=value"),
        ("pgd(a b=3)", "not of the form argument=value"),
        ("pgd(steps=1,steps=2)", "'steps' is given twice"),
        ("pgd(layers=[0,1)", "a bracket is not closed"),
        ("pgd(a=1/0)", "denominator is zero"),
        ("pgd(a=b=c)", "expected a number"),
        ("pgd(a=two words)", "expected a number"),
    ],
)
def test_another_form_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(BadValue, match=complaint) as caught:
        Call.parse(text)
    assert "\n" not in str(caught.value)


def test_the_arguments_of_a_call_cannot_be_changed() -> None:
    with pytest.raises(TypeError, match="item assignment"):
        Call("pgd", {"steps": 1}).arguments["steps"] = 2  # type: ignore[index]


def test_a_call_is_not_changed_by_the_mapping_it_was_made_from() -> None:
    given_arguments: dict[str, Value] = {"steps": 1}
    call = Call("pgd", given_arguments)
    given_arguments["steps"] = 2
    assert str(call) == "pgd(steps=1)"


def test_equal_calls_have_equal_hashes() -> None:
    assert len({Call("pgd", {"a": 1, "b": 2}), Call("pgd", {"b": 2, "a": 1})}) == 1


def test_a_call_survives_pickling() -> None:
    call = Call("pgd", {"layers": (0, 1), "step": Fraction(1, 3)})
    assert pickle.loads(pickle.dumps(call)) == call
    assert copy.deepcopy(call) == call


def test_giving_an_argument_anew_keeps_the_others() -> None:
    assert str(Call.parse("pgd(a=1,b=2)").with_arguments(b=3, c=4)) == "pgd(a=1,b=3,c=4)"


def test_defaults_are_filled_in() -> None:
    full = complete(Call.parse("attack(seed=1)"), attack, "attack", given=frozenset({"model"}))
    assert str(full) == "attack(loss=ce,seed=1,size=0.15,start=true,steps=20)"


def test_completing_twice_changes_nothing() -> None:
    once = complete(Call.parse("attack(seed=1,size=1/3)"), attack, "attack", given=frozenset({"model"}))
    assert complete(Call.parse(str(once)), attack, "attack", given=frozenset({"model"})) == once


@pytest.mark.parametrize("text", ["size=1", "size=1.0", "size=1/1", "size=2/2", "size=1e0"])
def test_spellings_of_a_number_have_one_text(text: str) -> None:
    full = complete(Call.parse(f"attack(seed=1,{text})"), attack, "attack", given=frozenset({"model"}))
    assert full.arguments["size"] == 1.0
    assert "size=1.0" in str(full)


def test_a_whole_float_is_a_whole_number_where_one_is_wanted() -> None:
    full = complete(Call.parse("attack(seed=1,steps=1e2)"), attack, "attack", given=frozenset({"model"}))
    assert "steps=100)" in str(full)


def test_a_list_as_default_is_as_good_as_a_tuple() -> None:
    def listed(layers: list[int] = [0, 1]) -> None:  # noqa: B006
        pass

    assert complete(Call("listed"), listed, "model") == complete(Call.parse("listed(layers=[0,1])"), listed, "model")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("steps=2.5", "steps is 2.5; expected a whole number"),
        ("steps=true", "steps is true; expected a whole number"),
        ("steps=many", "steps is many; expected a whole number"),
        ("size=true", "size is true; expected a number"),
        ("size=large", "size is large; expected a number"),
        ("size=none", "size is none; expected a number"),
        ("start=1", "start is 1; expected true or false"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadValue, match=complaint):
        complete(Call.parse(f"attack(seed=1,{text})"), attack, "attack", given=frozenset({"model"}))


def test_an_unknown_argument_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no argument of attack attack named 'step'. Did you mean 'steps'"):
        complete(Call.parse("attack(seed=1,step=3)"), attack, "attack", given=frozenset({"model"}))


def test_an_argument_that_the_caller_supplies_cannot_be_written() -> None:
    with pytest.raises(UnknownName, match="named 'model'"):
        complete(Call.parse("attack(seed=1,model=x)"), attack, "attack", given=frozenset({"model"}))


def test_an_argument_without_default_must_be_written() -> None:
    with pytest.raises(BadValue, match=r"argument seed is missing; write attack\(seed=...\)"):
        complete(Call("attack"), attack, "attack", given=frozenset({"model"}))


def test_a_list_of_one_is_its_element_where_both_are_allowed() -> None:
    def model(layers: int | list[int] | str = "all") -> None:
        pass

    texts = {str(complete(Call.parse(text), model, "model")) for text in ("model(layers=[0])", "model(layers=0)")}
    assert texts == {"model(layers=0)"}


@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 5000, "1/" + "9" * 5000, "9" * 5000 + "/7"])
def test_a_number_of_hundreds_of_digits_is_one_line(text: str) -> None:
    with pytest.raises(BadValue, match="expected a number of at most 300 digits") as caught:
        parse_value(text)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e999"])
def test_an_option_is_a_finite_number(text: str) -> None:
    def attack(*, step: float = 0.5) -> None: ...

    with pytest.raises(BadValue, match=r"attack pgd: step is .*; expected a finite number"):
        complete(Call.parse(f"pgd(step={text})"), attack, "attack")
