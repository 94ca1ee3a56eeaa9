"""A user's mistake is one line with the mend in it."""

from __future__ import annotations

import pytest

from robustkpca.errors import BadValue, UnknownName, Unusable, UserError, unknown


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


def test_a_long_list_is_cut_off_with_the_count_of_the_rest() -> None:
    message = str(unknown("attack", "zzz", [f"name{index}" for index in range(21)]))
    assert message.startswith("no attack named 'zzz'. Known: name0, name1, ")
    assert message.endswith(", name8 and 1 more.")


def test_an_empty_list_says_none() -> None:
    assert str(unknown("attack", "zzz", [])) == "no attack named 'zzz'. Known: none."
