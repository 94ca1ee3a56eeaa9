"""Words and their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustkpca.data.vocabulary import Vocabulary
from robustkpca.errors import BadValue


def test_words_are_counted_as_published() -> None:
    words = Vocabulary.counted(["b a a <unk> ", "", "c B b a <eos>"])
    assert words.words == ("<eos>", "a", "b", "<unk>", "c", "B")
    assert words.encode("b x A") == [2, 3, 3, 0]
    assert words.decode([1, 0]) == ["a", "<eos>"]


def test_a_list_and_a_text_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("<eos>\n<unk>\nb\na\n")
    assert Vocabulary.read(tmp_path / "list.txt").words == ("<eos>", "<unk>", "b", "a")
    (tmp_path / "text.txt").write_text("a a <unk>\nb\n")
    assert Vocabulary.read(tmp_path / "text.txt").words == ("<eos>", "a", "<unk>", "b")


@pytest.mark.parametrize("words", [("<eos>", "a"), ("<unk>", "a"), ("<eos>", "<unk>", "a", "a")])
def test_what_cannot_be_a_vocabulary_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(BadValue, match="a vocabulary"):
        Vocabulary(words)


def test_the_digest_depends_on_order() -> None:
    first, second = Vocabulary(("<eos>", "<unk>", "a")), Vocabulary(("<unk>", "<eos>", "a"))
    assert first.digest().shape == (32,)
    assert not first.digest().equal(second.digest())
