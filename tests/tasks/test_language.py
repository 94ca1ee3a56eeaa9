"""Perplexities: by hand, by brute force, whatever the cut, and through the same door as everything else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest
import torch

import robustkpca as rk
from robustkpca.boards import leaderboard
from robustkpca.data.text import lines_of, open_text
from robustkpca.data.vocabulary import Vocabulary
from robustkpca.errors import BadValue, Unusable
from robustkpca.models import create_model
from robustkpca.models.language_model import LanguageModel, sliding_losses
from robustkpca.models.loading import wrap
from robustkpca.statistics import bootstrap
from robustkpca.tasks.language import LANGUAGE
from robustkpca.tasks.task import find_task
from robustkpca.threats import ThreatModel

WORDS = Vocabulary(("<eos>", "<unk>", "red", "blue"))


class Bigram(torch.nn.Module):
    """Looks up the losses of a word after the one before it; counts how many windows it reads."""

    def __init__(self) -> None:
        super().__init__()
        rows = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1], [1, 1, 1, 1], [1, 1, 2, 4]], dtype=torch.float64)
        self.losses = torch.nn.Parameter(-(rows / rows.sum(1, keepdim=True)).log())
        self.vocabulary = WORDS
        self.windows: list[int] = []

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, last: int | None = None) -> torch.Tensor:
        self.windows.append(len(tokens))
        return self.losses[tokens, targets][:, -(last or targets.shape[1]) :]


def language_model(network: torch.nn.Module) -> LanguageModel:
    return LanguageModel(wrap(network))


def test_a_perplexity_is_that_computed_by_hand() -> None:
    """<eos> stands behind every line; the first word has nothing before it; green is unknown."""
    text = lines_of(["red blue", "", "green"], name="hand", context=2, stride=1)
    columns = LANGUAGE.measure(
        language_model(Bigram()),
        text.read([0, 1, 2], wrap(Bigram()).spec.preprocessing),
        torch.zeros(3, dtype=torch.int64),
        ThreatModel.parse("clean"),
        seed=0,
        ids=text.ids,
    )
    # red->blue 1/4, blue-><eos> 1/8 | <eos>-><eos> 1/10 | <eos>-><unk> 2/10, <unk>-><eos> 4/10
    assert columns["loss"] == pytest.approx([math.log(32), math.log(10), math.log(12.5)])
    assert columns["tokens"] == [2, 1, 2]
    assert columns["unknown"] == [0, 0, 1]
    total = sum(columns["loss"]) / sum(columns["tokens"])
    assert math.exp(total) == pytest.approx(4000 ** (1 / 5))


SMALL = "depth=2,embed_dim=16,num_heads=2,hidden_dim=32,cutoffs=[10],vocabulary=40"


def small(name: str) -> torch.nn.Module:
    network = create_model(f"{name}({SMALL}{',layers=[0,1]' if name == 'rpc_symlm' else ''})").double().eval()
    torch.manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.4)
    network.vocabulary = Vocabulary(("<eos>", "<unk>", *(f"w{number}" for number in range(38))))
    return network


@pytest.mark.parametrize("name", ["softmax_lm", "symlm", "rpc_symlm"])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_the_window_gives_what_one_pass_for_each_place_gives(name: str, stride: int) -> None:
    network, length = small(name), 8
    text = torch.randint(0, 40, (61,))
    places = torch.arange(1, 61)
    losses, windows = sliding_losses(language_model(network), text, places, context=length, stride=stride)
    for place in range(1, 61):
        end = length
        while end < place:
            end = min(end + stride, 60)
        with torch.no_grad():
            window = text[None, end - length : end + 1]
            whole = network(window[:, :-1], window[:, 1:])[0]
        assert float(losses[place - 1]) == pytest.approx(float(whole[length - 1 - (end - place)]), abs=1e-9)
    assert len(windows.unique()) == 1 + math.ceil((60 - length) / stride)
    some = torch.tensor([50, 3, 17])
    torch.testing.assert_close(
        sliding_losses(language_model(network), text, some, context=length, stride=stride)[0], losses[some - 1]
    )


def test_only_windows_that_score_something_wanted_are_read() -> None:
    network = Bigram()
    model = language_model(network)
    sliding_losses(model, torch.zeros(1000, dtype=torch.int64), [500, 501, 700], context=16, stride=1)
    assert network.windows == [8]  # three windows, and what fills up the eight rows of a pass


def test_a_text_shorter_than_the_window_is_one_shorter_window() -> None:
    losses, _ = sliding_losses(language_model(Bigram()), [2, 3, 0], [1, 2], context=256, stride=1)
    assert losses.tolist() == pytest.approx([math.log(4), math.log(8)])


def test_every_token_of_wikitext_but_the_first_is_scored(shared: Path) -> None:
    text = open_text(shared / "data" / "wikitext-2")
    assert (text.context, text.stride) == (256, 1)
    tokens = [token for line in text.lines for token in WORDS.encode(line)]
    assert len(tokens) == 217_646
    places = torch.arange(1, len(tokens))
    losses, windows = sliding_losses(language_model(Bigram()), tokens, places, context=256, stride=1)
    assert len(losses) == 217_645
    assert int(windows.max()) == 217_645 - 256
    again, _ = sliding_losses(language_model(Bigram()), tokens, places, context=256, stride=256)
    assert float(losses.sum()) == pytest.approx(float(again.sum()), rel=1e-12)  # a bigram needs no more context


DATA = "novel:context=16,stride=16"


def test_records_do_not_depend_on_limit_shards_or_batches(tmp_path: Path) -> None:
    threats = ["clean", "word-swap", "word-drop"]
    options = {"benchmark": "language", "data": DATA}
    whole = rk.score("rpc_symlm_novel", threats, **options).set_index(["threat", "sample"])["loss"]
    part = rk.score("rpc_symlm_novel", threats, limit=20, shard_size=7, batch_size=8, **options)
    assert len(part) == 60
    part = part.set_index(["threat", "sample"])["loss"]
    assert (part == whole[part.index]).all()
    assert len(whole) == 3 * 168


def test_the_table_is_the_exponential_of_the_mean_loss_with_an_interval() -> None:
    frame = rk.score("symlm_novel", benchmark="language", data=DATA, limit=30)
    assert set(frame["verdict"]) == {"measured"}
    (table,) = leaderboard(frame, "language")
    assert [column.title for column in table.board.columns][:2] == ["clean", "word-swap"]
    for column, cell in zip(table.board.columns, table.rows[0].cells, strict=True):
        mine = frame[frame["threat_label"] == column.title]
        parts = mine.sort_values("sample")[["loss", "tokens"]].to_numpy(numpy.float64)
        value = math.exp(parts[:, 0].sum() / parts[:, 1].sum())
        assert cell.value == pytest.approx(value, rel=1e-6)
        low, high = bootstrap(parts, lambda rows: math.exp(rows[:, 0].sum() / rows[:, 1].sum()))
        assert (cell.low, cell.high) == pytest.approx((low, high), rel=1e-6)
        assert low < value < high
    (plain,) = leaderboard(frame)
    assert {column.reduce for column in plain.board.columns} == {"perplexity"}


def test_lower_ranks_first_and_equal_models_share_a_rank() -> None:
    frame = rk.score(
        ["symlm_novel", "rpc_symlm_novel(iterations=1,lambda_=1e6)", "rpc_symlm_novel(layers=[0,1],lambda_=1e-3)"],
        "clean",
        benchmark="language",
        data=DATA,
    )
    rows = leaderboard(frame)[0].rows
    values = [row.cells[0].value for row in rows]
    assert values == sorted(values)
    assert rows[0].rank == 1


def test_a_run_continues_where_it_stopped(tmp_path: Path) -> None:
    first = rk.score("symlm_novel", "clean", benchmark="language", data=DATA, out=tmp_path, limit=10)
    shards = set(tmp_path.rglob("*.parquet"))
    again = rk.score("symlm_novel", "clean", benchmark="language", data=DATA, out=tmp_path, limit=10)
    assert set(tmp_path.rglob("*.parquet")) == shards
    assert first.equals(again)


def test_two_windows_are_two_data_sets() -> None:
    ids = {open_text(f"novel:context={context},stride=2").spec.id for context in (16, 32)}
    assert len(ids | {open_text("novel").spec.id}) == 3


@pytest.mark.parametrize(
    ("threats", "said"),
    [
        (["fgsm@linf:8/255"], "changes images"),
        (["fog:3"], "changes images"),
        (["worst-of(word-swap,keyboard)"], "no worst case"),
    ],
)
def test_threats_that_do_not_fit_are_refused(threats: list[str], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        rk.score("symlm_novel", threats, benchmark="language", data=DATA)


def test_text_does_not_meet_images() -> None:
    with pytest.raises(BadValue, match="changes text; expected one for images"):
        rk.score("symvit_digits", "word-swap")
    with pytest.raises(BadValue, match="changes text"):
        rk.attack("symvit_digits", torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), "word-swap")
    with pytest.raises(Unusable, match="has no vocabulary"):
        rk.score("symvit_digits", "clean", benchmark="language", data=DATA)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere", "nothing is there"),
        ("novel:context=0", "no part of a window"),
        ("novel:context=8,stride=9", "above the context"),
        ("novel:stride=two", "no part of a window"),
    ],
)
def test_a_text_that_cannot_be_used_is_told(source: str, said: str) -> None:
    with pytest.raises(BadValue, match=said):
        open_text(source)


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text("red blue\n\nblue \n", encoding="utf-8")
    folder, file = open_text(tmp_path), open_text(str(tmp_path / "valid.txt"))
    assert folder.lines == file.lines == ("red blue", "", "blue ")
    assert folder.notices
    (tmp_path / "valid.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadValue, match="no UTF-8 text"):
        open_text(tmp_path)


def test_infinite_losses_are_refused_before_the_run() -> None:
    network = Bigram()
    with torch.no_grad():
        network.losses[0, 0] = torch.inf
    with pytest.raises(Unusable, match="NaN or infinite"):
        LANGUAGE.look(language_model(network), lines_of(["red", "", ""], name="x"), [0])


def test_tasks_are_found_by_name() -> None:
    assert find_task("language") is LANGUAGE
    assert find_task("classification").reduction == "worst"


def test_the_command_that_makes_a_record_again_names_benchmark_and_window() -> None:
    frame = rk.score("symlm_novel", "clean", benchmark="language", data=DATA, limit=2)
    (command,) = set(frame["command"])
    assert command.startswith("robustkpca score symlm_novel ")
    assert command.endswith(f" --benchmark language --data {DATA} --limit 2")
