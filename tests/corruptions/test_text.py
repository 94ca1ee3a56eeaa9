"""Changed words and letters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy
import pytest

from robustkpca import registry
from robustkpca.corruptions.text import STOP_WORDS, WORD, neighbours, word_drop, word_swap
from robustkpca.draws import Draws
from robustkpca.errors import BadValue
from robustkpca.threats import ThreatModel, spread

TEXT = {name: one for name, one in registry.entries("corruptions").items() if "text" in one.tags}
LINES = (
    "The harbour lay quiet , and no boat had left it since the morning 's storm .",
    "",
    "of the and",
    " = U.S. <unk> trains = ",
    "a well-known @-@ mother's x",
)


def changed(
    name: str, lines: tuple[str, ...] = LINES, ids: tuple[str, ...] = ("a", "b", "c", "d", "e"), seed: int = 0
) -> list[str]:
    threat = ThreatModel.parse(name)
    made = threat.function()(lines, draws=Draws.of(ids, seed=seed, threat=str(threat)), **threat.call.arguments)
    return list(made)


def swaps(before: str, after: str) -> int:
    return sum(one != other for one, other in zip(WORD.findall(before), WORD.findall(after), strict=True))


@pytest.mark.parametrize("name", sorted(TEXT))
def test_a_line_depends_on_its_seed_and_name_alone(name: str) -> None:
    whole = changed(name)
    assert whole == changed(name)
    assert [changed(name, (line,), (one,))[0] for line, one in zip(LINES, "abcde", strict=True)] == whole
    many = tuple(LINES[:1] * 40)
    ids = tuple(map(str, range(40)))
    assert len(set(changed(name, many, ids))) > 5
    assert changed(name, many, ids) != changed(name, many, ids, seed=1)


@pytest.mark.parametrize("name", sorted(TEXT))
def test_an_empty_line_stays_and_something_changes_elsewhere(name: str) -> None:
    state = str(numpy.random.get_state())
    made = changed(f"{name}(fraction=0.5)")
    assert made[1] == ""
    assert made[0] != LINES[0]
    assert str(numpy.random.get_state()) == state


def test_words_keep_apostrophes_and_hyphens_inside_and_leave_marks_outside() -> None:
    assert WORD.findall("U.S. mother's -x- <unk> 3@.@5 é2_") == ["U", "S", "mother's", "x-", "unk", "3@", "5", "é2_"]


def test_the_stop_words_are_those_of_nltk() -> None:
    assert len(STOP_WORDS) == 179
    assert {"the", "shan't", "you've"} <= STOP_WORDS
    assert "The" not in STOP_WORDS


def test_stop_words_and_swapped_words_are_left_alone_and_marks_stay() -> None:
    assert changed("word-swap")[2] == "of the and"
    assert {changed("word-swap", ("AAA of",), ("a",), seed)[0] for seed in range(20)} == {"AAA of"}
    seen = {changed("word-swap", (LINES[3],), ("a",), seed)[0] for seed in range(200)}
    assert seen == {
        LINES[3],
        " = AAA.S. <unk> trains = ",
        " = U.AAA. <unk> trains = ",
        " = U.S. <AAA> trains = ",
        " = U.S. <unk> AAA = ",
    }


def test_one_line_in_candidates_plus_one_has_one_swap_less() -> None:
    """Four words may be swapped, so one line in five stays as it is, and each other result is as frequent."""
    count = 5000
    made = Counter(changed("word-swap", (LINES[3],) * count, tuple(map(str, range(count)))))
    assert all(abs(number - count / 5) < 4 * (count * 0.2 * 0.8) ** 0.5 for number in made.values())
    assert len(made) == 5


def test_the_number_of_swaps_is_a_share_of_all_words() -> None:
    line = " ".join(["word"] * 100 + ["the"] * 100)
    found = Counter(swaps(line, one) for one in changed("word-swap", (line,) * 300, tuple(map(str, range(300)))))
    assert set(found) <= {2, 3}  # floor(0.015 * 200) = 3, or one less in one of 99
    assert found[3] > 280
    assert {
        swaps(line, one) for one in changed("word-swap(fraction=0.1)", (line,) * 20, tuple(map(str, range(20))))
    } <= {19, 20}


def test_swaps_per_line_of_wikitext_are_distributed_as_the_rule_says(shared: Path) -> None:
    """The expected number of lines with m swaps is a sum of c / (c + 1); that of this seed lies within 4 deviations."""
    lines = (shared / "data" / "wikitext-2" / "wiki.valid.tokens").read_text("utf-8").split("\n")[:-1]
    made = changed("word-swap", tuple(lines), tuple(map(str, range(len(lines)))))
    expected: Counter[int] = Counter()
    spread_: Counter[int] = Counter()
    for line in lines:
        words = WORD.findall(line)
        free = sum(word not in STOP_WORDS and word != "AAA" for word in words)
        wanted = min(max(int(0.015 * len(words)), 1), free + 1)
        left = max(free - (wanted - 1), 0)
        chance = left / (left + 1)
        for number, probability in ((wanted, chance), (wanted - 1, 1 - chance)):
            expected[number] += probability
            spread_[number] += probability * (1 - probability)
    found = Counter(swaps(line, one) for line, one in zip(lines, made, strict=True))
    assert sum(found.values()) == 3760
    for number in expected:
        assert abs(found[number] - expected[number]) <= 4 * spread_[number] ** 0.5 + 1e-9, (number, found, expected)


def test_letters_change_within_words() -> None:
    for seed in range(30):
        (swapped,), (shorter,), (hit,) = (
            changed(name, ("lantern",), ("a",), seed) for name in ("character-swap", "character-delete", "keyboard")
        )
        assert sorted(swapped) == sorted("lantern")
        assert swapped != "lantern"
        assert len(shorter) == 6
        (place,) = (place for place in range(7) if hit[place] != "lantern"[place])
        assert hit[place] in neighbours("lantern"[place])


def test_the_neighbours_of_keys() -> None:
    assert set(neighbours("g")) == set("fhtyvb")
    assert set(neighbours("Q")) == set("WA")
    assert set(neighbours("m")) == set("njk")
    assert neighbours("3") == ""
    for letter in "qwertyuiopasdfghjklzxcvbnm":
        assert all(letter in neighbours(other) for other in neighbours(letter))


def test_a_line_never_loses_all_its_words() -> None:
    assert word_drop(["one"], draws=Draws.of(["a"], seed=0, threat="x"), fraction=1.0) == ["one"]
    (left,) = word_drop(["one two three"], draws=Draws.of(["a"], seed=0, threat="x"), fraction=1.0)
    assert left in ("one", "two", "three")


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_a_share_lies_between_0_and_1(fraction: float) -> None:
    with pytest.raises(BadValue, match="fraction is"):
        word_swap(["one"], draws=Draws.of(["a"], seed=0, threat="x"), fraction=fraction)


def test_a_corruption_of_text_is_written_without_a_severity() -> None:
    assert str(ThreatModel.parse("word-swap")) == "word-swap(fraction=0.015)"
    assert ThreatModel.parse("word-swap(fraction=0.015)").label == "word-swap"
    assert spread("word-swap") == ["word-swap"]
    with pytest.raises(BadValue, match="has no severities; write 'word-swap'"):
        ThreatModel.parse("word-swap:3")
    with pytest.raises(BadValue, match="takes no budget"):
        ThreatModel.parse("word-swap@linf:8/255")
