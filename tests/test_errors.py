"""A user's mistake is one line with the mend in it."""

from __future__ import annotations

import pytest

from robustkpca.errors import BadValue, UnknownName, Unusable, UserError, plain, unknown


@pytest.mark.parametrize(
    ("kind", "builtin"), [(BadValue, ValueError), (UnknownName, LookupError), (Unusable, RuntimeError)]
)
def test_a_user_error_is_also_the_builtin_that_python_users_catch(
    kind: type[UserError], builtin: type[Exception]
) -> None:
    assert issubclass(kind, UserError)
    assert issubclass(kind, builtin)


def test_the_nearest_name_comes_first() -> None:
    assert "Did you mean 'pgd'" in str(unknown("attack", "pdg", ["fgsm", "noise", "pgd"]))


def test_a_short_list_is_shown_where_nothing_is_near() -> None:
    assert str(unknown("attack", "zzz", ["pgd", "fgsm"])) == "no attack named 'zzz'. Known: fgsm, pgd."


def test_an_empty_list_says_none() -> None:
    assert str(unknown("attack", "zzz", [])) == "no attack named 'zzz'. Known: none."


def test_of_a_long_list_the_nearest_are_named_however_far() -> None:
    known = [f"network_{index:03}" for index in range(500)]
    message = str(unknown("model", "zzz_012", known))
    assert message.startswith("no model named 'zzz_012'. The nearest of 500 are 'network_0")


def test_a_name_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[31mred\x1b]0;title\x07\nb\tñ") == "a\\x1b[31mred\\x1b]0;title\\x07 b ñ"
