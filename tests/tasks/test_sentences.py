"""Sentences with labels: verdicts, and the same door as everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import robustkpca as rk
from robustkpca.boards import leaderboard
from robustkpca.data.sentences import open_sentences
from robustkpca.data.vocabulary import Vocabulary
from robustkpca.errors import BadValue, Unusable
from robustkpca.models import create_model
from robustkpca.models.loading import wrap
from robustkpca.models.sentence_model import SentenceModel
from robustkpca.tasks.sentences import SENTENCES
from robustkpca.threats import ThreatModel

WORDS = Vocabulary(("<eos>", "<unk>", "good", "bad"))


class Counting(torch.nn.Module):
    """Logits are the numbers of the words good and bad."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary = WORDS
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([(tokens == word).sum(1) * self.weight[0] for word in (2, 3)], dim=1)


def measured(lines: list[str], labels: list[int], threat: str) -> dict[str, list[object]]:
    from robustkpca.data.sentences import Texts

    model = SentenceModel(wrap(Counting()))
    ids = [str(row) for row in range(len(lines))]
    threat_model = ThreatModel.parse(threat)
    return SENTENCES.measure(model, Texts(tuple(lines)), torch.tensor(labels), threat_model, seed=0, ids=ids)


def test_a_sentence_is_mistaken_broken_or_survives() -> None:
    """Every word becomes another one under this swap, so that both logits are 0 and the first class is said."""
    lines = ["bad bad", "good", "good good bad"]
    assert measured(lines, [1, 0, 1], "clean")["verdict"] == ["survived", "survived", "mistaken"]
    found = measured(lines, [1, 0, 1], "character-delete(fraction=1.0)")
    assert found["verdict"] == ["broken", "survived", "mistaken"]
    assert found["clean_prediction"] == [1, 0, 0]
    assert found["prediction"] == [0, 0, 0]


def test_the_first_of_several_threats_that_breaks_a_sentence_decides() -> None:
    found = measured(["bad bad"], [1], "worst-of(word-swap(fraction=0.0),character-delete(fraction=1.0))")
    assert found["verdict"] == ["broken"]
    assert found["forwards"] == [3]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    (tmp_path / "words.txt").write_text("<eos>\n<unk>\ngood\nbad\nfilm\n")
    lines = [f"{row % 2} {'bad' if row % 2 else 'good'} film {' film' * (row % 5)}" for row in range(40)]
    (tmp_path / "stsa.fine.dev").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("attention", ["softmax", "symmetric", "rpc", "kde", "elliptical"])
def test_a_run_does_not_depend_on_its_cut(reviews: Path, attention: str) -> None:
    name = f"sentence_transformer(attention={attention},num_classes=2,vocabulary={reviews / 'words.txt'})"
    options = {"benchmark": "sentences", "data": reviews}
    whole = rk.score(name, ["clean", "keyboard"], **options).set_index(["threat", "sample"])
    part = rk.score(name, ["clean", "keyboard"], limit=9, shard_size=4, batch_size=8, **options)
    part = part.set_index(["threat", "sample"])
    assert len(whole) == 80
    for column in ("verdict", "loss", "margin"):
        assert (part[column].astype(object) == whole.loc[part.index, column].astype(object)).all()


def test_the_table_of_the_board(reviews: Path) -> None:
    name = f"sentence_transformer(num_classes=2,vocabulary={reviews / 'words.txt'})"
    (table,) = leaderboard(rk.score(name, benchmark="sentences", data=reviews), "sentences")
    assert [cell.count for cell in table.rows[0].cells] == [40] * 7


def test_rpc_with_one_pass_and_a_large_threshold_is_the_symmetric_classifier() -> None:
    options = "vocabulary=30,num_classes=3"
    one = create_model(f"sentence_transformer(attention=rpc,iterations=1,lambda_=1e6,layers=all,{options})").eval()
    two = create_model(f"sentence_transformer(attention=symmetric,{options})").eval()
    two.load_state_dict(one.state_dict())
    tokens = torch.randint(0, 30, (4, 7))
    with torch.no_grad():
        torch.testing.assert_close(one(tokens), two(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "it is empty"), ("good film\n", "line 1 is"), ("7 good\n", "has a class 7")],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(BadValue, match=said):
        open_sentences(tmp_path / "a.txt", 5)
    with pytest.raises(BadValue, match="no sentences in it"):
        open_sentences(tmp_path)


def test_a_model_of_other_classes_or_without_words_is_refused(reviews: Path) -> None:
    with pytest.raises(Unusable, match="5 outputs, the data set 2 classes"):
        rk.score(f"sentence_transformer(vocabulary={reviews / 'words.txt'})", benchmark="sentences", data=reviews)
    with pytest.raises(Unusable, match="has no vocabulary"):
        rk.score("sentence_transformer(num_classes=2)", benchmark="sentences", data=reviews)
    with pytest.raises(BadValue, match="changes images"):
        rk.score("sentence_transformer", "fog:3", benchmark="sentences", data=reviews)
    with pytest.raises(BadValue, match="fixed number of tokens"):
        create_model("sentence_transformer(attention=scaled)")


def test_sst5_is_read(shared: Path) -> None:
    data = open_sentences(shared / "data" / "sst5")
    assert len(data.ids) == 1101
    assert data.spec.classes == 5
    assert data.lines[1] == "one long string of cliches ."
    assert data.labels[:3] == (2, 1, 1)
