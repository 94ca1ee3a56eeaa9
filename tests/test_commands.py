"""The command line as its users meet it: exit codes, streams, and one line for every mistake."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import numpy
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

import robustkpca
from robustkpca import __main__, commands, registry
from robustkpca.data import images as image_files_module
from robustkpca.data.digest import files_digest
from robustkpca.store import ResultStore

BUNDLED = [
    name
    for name in ("softmax_vit_digits", "symvit_digits", "rpc_symvit_digits")
    if (Path(robustkpca.__file__).parent / "models" / "bundled" / f"{name}.safetensors").is_file()
]
NET = """
import time
import torch
from torch import nn

class Net(nn.Module):
    preprocessing = "preprocessing(channels=1)"

    def __init__(self, classes=10, pixels=64, ending="", pause=0.0, most=1000):
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(pixels, classes)
        self.ending, self.pause, self.most = ending, pause, most

    def forward(self, images):
        time.sleep(self.pause)
        if len(images) > self.most:
            raise torch.OutOfMemoryError("no room")
        logits = self.linear(images.flatten(1))
        if self.ending == "holes":
            logits = logits / 0 - logits / 0
        return logits.softmax(1) if self.ending == "softmax" else logits
"""


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it said on stderr; no line may be a traceback."""
        assert "Traceback" not in self.err
        return self.err.splitlines()


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process, in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def running(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["robustkpca", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            commands.main()
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, said.out, said.err)

    return running


def process(*arguments: str | Path, cwd: Path, **variables: str) -> Outcome:
    """Run a program, and say what became of it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(
        list(map(str, arguments)), capture_output=True, encoding="utf-8", cwd=cwd, env=environment, timeout=120
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("records/*/*/shard-*.parquet"))


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data, models and checkpoints, good and bad."""
    folder = tmp_path_factory.mktemp("inputs")
    generator = numpy.random.default_rng(0)
    pixels, labels = generator.random((24, 1, 8, 8), dtype=numpy.float32), numpy.arange(24) % 10
    arrays = {
        "good": (pixels, labels),
        "from_one": (pixels, labels + 1),
        "negative": (pixels, labels - 1),
        "halves": (pixels, labels + 0.5),
        "bytes_as_floats": (pixels * 255, labels),
        "normalised": ((pixels - 0.5) / 0.25, labels),
        "holes": (numpy.where(pixels > 0.999, numpy.nan, pixels), labels),
        "nine": (pixels, labels % 9),
    }
    for name, (images, classes) in arrays.items():
        numpy.savez(folder / f"{name}.npz", images=images, labels=classes)
    (folder / "cut.npz").write_bytes((folder / "good.npz").read_bytes()[:500])
    (folder / "empty").mkdir()
    for number in range(10):
        (folder / "photos" / f"digit {number}").mkdir(parents=True)
        for index in range(3):
            picture = Image.fromarray((generator.random((8, 8)) * 255).astype(numpy.uint8))
            picture.save(folder / "photos" / f"digit {number}" / f"{index}.png")
    (folder / "net.py").write_text(NET)
    (folder / "broken.py").write_text("def build():\n    raise RuntimeError('first line\\nsecond line')\n")
    (folder / "with space").mkdir()
    (folder / "with space" / "my net.py").write_text(NET)
    good = nn.ModuleDict({"linear": nn.Linear(64, 10)}).state_dict()
    states = {
        "good": good,
        "missing": {"linear.weight": good["linear.weight"]},
        "extra": good | {"another.weight": torch.ones(3)},
        "seven": nn.ModuleDict({"linear": nn.Linear(64, 7)}).state_dict(),
    }
    for name, state in states.items():
        torch.save(state, folder / f"{name}.pth")
    torch.save(good, folder / "with space" / "my net.pth")
    (folder / "cut.pth").write_bytes((folder / "good.pth").read_bytes()[:700])
    (folder / "page.pth").write_text("<!DOCTYPE html><html>404</html>")
    (folder / "code.pth").write_bytes(pickle.dumps(_Intruder()))
    for name, text in {
        "good": "models: [{name: symvit_digits, dtype: float64}]\nthreats: [clean, 'fgsm@linf:0.05']\nlimit: 6\n",
        "unknown": "model: [symvit_digits]\n",
        "inner": "models: [{name: symvit_digits, checkpont: a.pth}]\n",
        "bad_value": "limit: 0\n",
        "no_yaml": "models: [a\n",
        "list": "- symvit_digits\n",
    }.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "file").write_text("")
    return folder


class _Intruder:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("echo intruder",)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a real first run, cut down to a few samples, with what it said beside them."""
    folder = tmp_path_factory.mktemp("first run")
    done = process(sys.executable, "-m", "robustkpca", "score", *BUNDLED, "--limit", "12", "--out", "kept", cwd=folder)
    (folder / "outcome.json").write_text(json.dumps([done.code, done.out, done.err]))
    return folder / "kept"


def first_run(results: Path) -> Outcome:
    return Outcome(*json.loads((results.parent / "outcome.json").read_text()))


# What a newcomer does


def test_a_first_run_prints_the_table_on_stdout_and_what_it_does_on_stderr(results: Path) -> None:
    done = first_run(results)
    assert done.code == 0, done.err
    assert done.out.startswith("### Robust accuracy: digits\n")
    assert all(f"| {name} " in done.out for name in BUNDLED)
    assert [line.split(":")[1].strip() for line in done.lines] == BUNDLED
    assert all("60 verdicts" in line for line in done.lines)


def test_the_bundled_models_are_what_runs_where_none_is_named(run: Run) -> None:
    done = run("score", "--limit", "4", "--threats", "clean")
    if len(BUNDLED) < 3:
        pytest.skip("not all bundled checkpoints are there")
    assert done.code == 0
    assert all(f"| {name} " in done.out for name in BUNDLED)


def test_the_same_command_again_runs_nothing_and_prints_the_same_table(run: Run, results: Path) -> None:
    again = run("score", *BUNDLED, "--limit", "12", "--out", results)
    assert again.code == 0
    assert again.out == first_run(results).out
    assert again.lines == ["robustkpca: everything is there already"]


def test_a_results_folder_is_a_table_without_torch(results: Path) -> None:
    code = f"""
import json, sys
from robustkpca.commands import main
for words in json.loads({json.dumps(json.dumps(_TORCHLESS))}):
    sys.argv = ["robustkpca", *words]
    try:
        main()
    except SystemExit as left:
        assert left.code == 0, words
    assert "torch" not in sys.modules, words
"""
    done = process(sys.executable, "-c", code, cwd=results.parent)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("### Robust accuracy: digits") == 1


_TORCHLESS = [
    [],
    ["--help"],
    ["-h"],
    ["--version"],
    ["score", "--help"],
    ["leaderboard", "--help"],
    ["list", "models"],
    ["list", "threats"],
    ["list", "boards", "--json"],
    ["show", "kept"],
    ["show", "kept", "--json"],
    ["leaderboard", "kept"],
    ["leaderboard", "kept", "--board", "quick", "--format", "csv"],
]


@pytest.mark.parametrize(
    "program",
    [
        [sys.executable, "-m", "robustkpca"],
        [sys.executable, str(Path(__file__).parents[1] / "cli.py")],
        [str(Path(sys.executable).with_name("robustkpca"))],
    ],
    ids=["module", "launcher", "script"],
)
def test_there_are_three_ways_to_call_it(run: Run, program: list[str], tmp_path: Path) -> None:
    if Path(program[-1]).is_absolute() and not Path(program[-1]).exists():
        pytest.skip(f"{program[-1]} is not there")
    done = process(*program, "list", "boards", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, run("list", "boards").out, "")


def test_help_shows_commands_that_can_be_run(run: Run) -> None:
    for verb in commands.cli.commands:
        done = run(verb, "--help")
        assert done.code == 0
        assert re.search(rf"^  robustkpca {verb}\b", done.out, re.MULTILINE)


def test_json_is_all_there_is_on_stdout(run: Run, results: Path) -> None:
    done = run("score", "symvit_digits", "--limit", "12", "--threats", "clean", "--out", results, "--json")
    (table,) = json.loads(done.out)
    assert [row["name"] for row in table["rows"]] == ["symvit_digits"]


def test_quiet_says_nothing(run: Run, inputs: Path) -> None:
    done = run("score", f"{inputs}/net.py:Net", "--data", inputs / "good.npz", "--threats", "clean", "--quiet")
    assert (done.code, done.err) == (0, "")


def test_lists_are_filtered_by_name_and_tag(run: Run) -> None:
    assert [row["name"] for row in json.loads(run("list", "models", "rpc_symvit_t", "--json").out)] == [
        "rpc_symvit_tiny"
    ]
    tagged = json.loads(run("list", "attacks", "--tag", "black-box", "--json").out)
    assert tagged
    assert all("black-box" in row["tags"] for row in tagged)


def test_a_table_goes_to_a_file(run: Run, results: Path, tmp_path: Path) -> None:
    done = run("leaderboard", results, "--format", "csv", "--out", tmp_path / "table.csv")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "table.csv").read_text() == run("leaderboard", results, "--format", "csv").out


# What is asked for


@pytest.mark.parametrize(
    "words",
    [
        ["{net}", "--threats", "clean", "noise@linf:0.1", "fgsm@linf:0.1", "--data", "{data}"],
        ["--threats", "clean", "noise@linf:0.1", "fgsm@linf:0.1", "--data", "{data}", "{net}"],
        ["--data", "{data}", "--threats", "clean", "noise@linf:0.1", "fgsm@linf:0.1", "--", "{net}"],
        ["{net}", "--data={data}", "--threats=clean", "--threats", "noise@linf:0.1", "--threats", "fgsm@linf:0.1"],
    ],
    ids=["last", "first", "dashes", "repeated"],
)
def test_threats_takes_every_word_up_to_the_next_option(run: Run, inputs: Path, words: list[str]) -> None:
    names = {"net": f"{inputs}/net.py:Net", "data": str(inputs / "good.npz")}
    done = run("score", "--json", *(word.format(**names) for word in words))
    (table,) = json.loads(done.out)
    titles = [column["title"] for column in table["board"]["columns"]]
    assert titles == ["clean", "noise@linf:0.1", "fgsm@linf:0.1", "worst of 2"]


def test_a_config_holds_a_matrix_and_the_command_line_wins(run: Run, inputs: Path) -> None:
    done = run("score", "--config", inputs / "good.yaml", "--limit", "4")
    assert done.code == 0
    assert "n = 4;" in done.out
    assert "8 verdicts, preprocessing(channels=1,crop=none,resize=none), float64 on cpu" in done.err


def test_the_resolved_config_repeats_the_run(run: Run, tmp_path: Path) -> None:
    done = run("score", "symvit_digits", "--limit", "4", "--threats", "clean")
    (kept,) = (tmp_path / "results" / "configs").iterdir()
    values = yaml.safe_load(kept.read_text())
    assert ([model["name"] for model in values["models"]], values["data"]) == (["symvit_digits"], "digits")
    again = run("score", "--config", kept)
    assert (again.code, again.out, again.lines) == (0, done.out, ["robustkpca: everything is there already"])


def test_paths_may_hold_spaces_and_a_checkpoint_belongs_to_its_model(run: Run, inputs: Path) -> None:
    folder = inputs / "with space"
    options = ("--data", inputs / "photos", "--threats", "clean", "--out", "my results")
    done = run("score", f"{folder}/my net.py:Net", "--checkpoint", folder / "my net.pth", *options)
    assert done.code == 0
    (header,) = ResultStore("my results").headers()
    assert header["model"]["checkpoint"]


def test_what_was_noticed_about_the_data_is_said(run: Run, inputs: Path) -> None:
    done = run("score", f"{inputs}/net.py:Net(classes=11)", "--data", inputs / "from_one.npz", "--threats", "clean")
    assert done.code == 0
    assert done.lines[0] == "robustkpca: from_one: labels run from 1 to 10; if they count from 1, subtract 1"


def test_data_that_lack_the_last_class_are_scored_when_the_number_of_classes_is_given(run: Run, inputs: Path) -> None:
    options = (f"{inputs}/net.py:Net", "--data", inputs / "nine.npz", "--threats", "clean")
    refused = run("score", *options)
    assert refused.code == 2
    assert "10 outputs, the data set 9 classes" in refused.err
    assert "--classes 10" in refused.err
    assert run("score", *options, "--classes", "10").code == 0


def test_a_network_of_ours_without_a_checkpoint_is_marked(run: Run, inputs: Path) -> None:
    model = "softmax_vit_tiny(img_size=8,patch_size=4,in_chans=1,num_classes=10,depth=1,embed_dim=12,num_heads=3)"
    done = run(
        "score", model, "--preprocessing", "channels=1,crop=none,resize=none,mean=[],std=[]",
        "--data", inputs / "good.npz", "--threats", "clean",
    )  # fmt: skip
    assert "! initial weights: no checkpoint was given" in done.out
    assert any(line.endswith("initial weights: no checkpoint was given") for line in done.lines)


def test_an_accuracy_that_looks_like_guessing_is_remarked(run: Run, inputs: Path) -> None:
    done = run("score", f"{inputs}/net.py:Net", "--threats", "clean", "--limit", "60")
    assert done.code == 0
    assert re.search(r"Net: \d+ of 60 clean samples are right, which guessing among 10 classes gives", done.err)


# What goes wrong on the way


@pytest.mark.parametrize(
    ("group", "source", "threat", "why"),
    [
        ("attacks", "def kick(model, images, labels, *, budget, draws):\n    raise RuntimeError('no\\nlicence')\n",
         "stranger/kick@linf:0.1", "RuntimeError: no licence (kick, line 2)"),
        ("attacks", "def kick(model, images, labels, *, budget, draws):\n    return images[:1]\n",
         "stranger/kick@linf:0.1", "the attack proposed (1, 1, 8, 8)"),
        ("corruptions", "def kick(images, *, severity, draws):\n    raise RuntimeError('no licence')\n",
         "stranger/kick:3", "RuntimeError: no licence (kick, line 2)"),
        ("corruptions", "def kick(images, *, severity, draws):\n    return images / 2\n",
         "stranger/kick:3", "the corruption gave (24, 1, 8, 8) torch.float32 for (24, 1, 8, 8) torch.uint8"),
    ],
    ids=["attack raises", "attack of another shape", "corruption raises", "corruption of another type"],
)  # fmt: skip
def test_cells_without_a_value_are_shown_and_end_with_one(
    run: Run, inputs: Path, plug_in: Callable[[str, str], None], group: str, source: str, threat: str, why: str
) -> None:
    plug_in(group, source)
    options = ("--data", inputs / "good.npz", "--threats", "clean", threat, "--out", "my results")
    done = run("score", f"{inputs}/net.py:Net", *options)
    assert done.code == 1
    assert re.search(r"\d+ failed", done.out)
    assert done.lines[-1] == "robustkpca: some cells have no value; 'robustkpca show 'my results'' lists why"
    shown = run("show", "my results")
    assert (shown.code, shown.err) == (0, "")
    assert why in shown.out


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Announces ``stranger/kick`` in a group, from the source of its module."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def announce(group: str, source: str) -> None:
        table = "TABLE = {'kick': 'kick_of_a_test:kick'}\n"
        (tmp_path / "kick_of_a_test.py").write_text(source + table)
        importlib.invalidate_caches()
        point = EntryPoint("stranger", "kick_of_a_test:TABLE", f"robustkpca.{group}")
        monkeypatch.setattr(
            registry,
            "entry_points",
            lambda group: [*entry_points(group=group), *([point] if group == point.group else [])],
        )
        registry.refresh()

    yield announce
    monkeypatch.undo()
    registry.refresh()
    sys.modules.pop("kick_of_a_test", None)


def test_a_damaged_image_is_named_and_recorded_and_the_rest_is_kept(run: Run, inputs: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(inputs / "photos", tmp_path / "photos")
    damaged = sorted(photos.glob("*/*.png"))[_late(photos)]
    damaged.write_bytes(damaged.read_bytes()[:60])
    options = ("--data", photos, "--threats", "clean", "noise@linf:0.1", "--shard-size", "4", "--out", "kept")
    done = run("score", f"{inputs}/net.py:Net", *options)
    assert done.code == 1
    assert f"image '{damaged}' cannot be decoded" in done.err
    assert done.out.count("1 failed") >= 2
    frame = ResultStore("kept").frame()
    lost = frame[frame["verdict"] == "failed"]
    assert len(frame) == 60
    assert set(lost["sample"]) == {damaged.relative_to(photos).as_posix()}
    assert len(lost) == 2
    assert lost["detail"].str.contains("replace or remove the file").all()
    again = run("score", f"{inputs}/net.py:Net", *options)
    assert ": 2 verdicts," in again.err  # tried again, and nothing else is


def test_images_that_are_all_damaged_stop_the_run(run: Run, inputs: Path, tmp_path: Path) -> None:
    photos = shutil.copytree(inputs / "photos", tmp_path / "photos")
    for path in photos.glob("*/*.png"):
        path.write_bytes(path.read_bytes()[:60])
    done = run("score", f"{inputs}/net.py:Net", "--data", photos, "--threats", "clean", "--out", "kept")
    assert done.code == 2
    assert "none of the 30 images can be read: image" in done.lines[-1]
    assert not Path("kept").exists()


def test_a_smaller_run_in_the_same_folder_shows_its_own_samples(run: Run) -> None:
    assert run("score", "symvit_digits", "--threats", "clean", "--limit", "20", "--out", "both").code == 0
    done = run("score", "symvit_digits", "--threats", "clean", "noise@linf:0.05", "--limit", "8", "--out", "both")
    assert done.code == 0
    assert "n = 8;" in done.out
    assert "12 of 20 missing" in run("leaderboard", "both").out


def test_a_damaged_image_costs_its_shard_and_the_rest_is_kept(
    run: Run, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image damaged after the checks; mended to its old contents, it lets the run continue."""
    monkeypatch.setattr(image_files_module.ImageFiles, "check", lambda *_: {})
    sizes = lambda root, ids, labels: (files_digest(root, ids, labels)[0][:0] + "0" * 64, "names and sizes")  # noqa: E731
    monkeypatch.setattr(image_files_module, "files_digest", sizes)
    photos = shutil.copytree(inputs / "photos", tmp_path / "photos")
    options = ("--data", photos, "--threats", "clean", "--shard-size", "4")
    model = f"{inputs}/net.py:Net"
    whole = run("score", model, *options, "--out", "whole")
    order = [header for header in ResultStore("whole").headers()]
    assert len(order) == 8
    damaged = sorted(photos.glob("*/*.png"))[_late(photos)]
    content = damaged.read_bytes()
    damaged.write_bytes(bytes(len(content)))
    done = run("score", model, *options, "--out", "kept")
    assert done.code == 2
    assert len(done.lines) == 2
    assert str(damaged) in done.lines[1]
    assert done.lines[1].endswith("replace or remove the file")
    kept = len(ResultStore("kept").frame())
    assert 0 < kept < 30
    assert json.loads(run("show", "kept", "--json").out)[0]["missing"] == 30 - kept
    damaged.write_bytes(content)
    mended = run("score", model, *options, "--out", "kept")
    assert f": {30 - kept} verdicts," in mended.err
    assert (mended.code, mended.out) == (0, whole.out)


def _late(photos: Path) -> int:
    """Return the place of an image that is read in the second half of a run, and not for the checks before it."""
    from robustkpca.data import open_data
    from robustkpca.data.selection import selection

    return selection(open_data(photos).ids)[20]


def test_passes_that_do_not_fit_are_halved_and_the_fewest_end_the_run(run: Run, inputs: Path) -> None:
    def words(most: int) -> list[str | Path]:
        model, data = f"{inputs}/net.py:Net(most={most})", inputs / "good.npz"
        return ["score", model, "--data", data, "--threats", "clean", "fgsm@linf:0.1"]

    done = run(*words(8))
    assert done.code == 0
    assert "too little memory for passes of 32 images; going on with 16, which changes no verdict" in "".join(
        done.lines
    )
    done = run(*words(7))
    assert done.code == 2
    assert "cannot take images" in done.lines[-1]
    assert "no room" in done.lines[-1]


def test_an_interrupted_run_keeps_its_shards_and_continues(run: Run, inputs: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "robustkpca", "score"]
    options = ["--data", str(inputs / "good.npz"), "--threats", "clean", "--shard-size", "4"]
    running = subprocess.Popen(
        [*program, f"{inputs}/net.py:Net(pause=0.8)", *options],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background may have it ignored
    )
    deadline = time.monotonic() + 100
    while not shards(tmp_path / "results") and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "robustkpca: interrupted; the same command continues where it stopped"
    assert "Traceback" not in err
    kept = len(shards(tmp_path / "results"))
    assert 0 < kept < 6
    again = run("score", f"{inputs}/net.py:Net(pause=0.8)", *options)
    assert again.code == 0
    assert f": {24 - 4 * kept} verdicts," in again.err


def test_a_reader_that_leaves_early_is_no_error(results: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "robustkpca", "leaderboard", str(results), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    assert (running.stderr.read(), running.wait(60)) == (b"", 0)
    running.stderr.close()


@pytest.mark.parametrize("width", ["10", "80", "200"])
@pytest.mark.parametrize("verb", ["score", "show", "list"])
def test_a_narrow_terminal_cuts_nothing_off(
    run: Run, results: Path, monkeypatch: pytest.MonkeyPatch, verb: str, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    words = {
        "score": ["score", *BUNDLED, "--limit", "12", "--out", str(results)],
        "show": ["show", str(results)],
        "list": ["list", "models"],
    }
    done = run(*words[verb])
    assert done.code == 0
    assert "…" not in done.out
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out).splitlines()
    names = {
        "score": BUNDLED,
        "show": [header["model"]["id"] for header in ResultStore(results).headers()],
        "list": [*registry.entries("models")],
    }
    for name in names[verb]:
        assert any(name in re.split(r"[ │|]+", line) for line in lines), (name, lines)
    for word in {"score": "worst", "show": "broken", "list": "tags"}[verb].split():
        assert any(word in line for line in lines)


@pytest.mark.parametrize("width", ["80", "160"])
def test_no_line_of_a_table_is_wider_than_the_terminal_and_no_interval_is_split(
    run: Run, results: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = run("leaderboard", str(results), "--board", "quick")
    assert done.code == 0
    table = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out).splitlines() if "[" in line]
    assert table
    assert max(map(len, table)) <= int(width)
    assert all(line.count("[") == line.count("]") for line in table)


@pytest.mark.parametrize(("verb", "code"), [("leaderboard", 0), ("show", 0), ("score", 2)])
def test_letters_that_a_terminal_lacks_stop_nothing(
    run: Run, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, code: int
) -> None:
    photos = shutil.copytree(inputs / "photos", tmp_path / "Fötös")
    model = shutil.copy(inputs / "net.py", tmp_path / "nät.py")
    options = ("--threats", "clean", "--out", "Tübingen", "--data")
    assert run("score", f"{model}:Net", *options, photos).code == 0
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True))
    words = {"score": [f"{model}:Net", *options, tmp_path / "Fötö"]}.get(verb, ["Tübingen"])
    monkeypatch.setattr(sys, "argv", ["robustkpca", verb, *map(str, words)])
    with pytest.raises(SystemExit) as left:
        commands.main()
    assert left.value.code == code


# Mistakes: one line that names the value got, the value wanted and the mend

SCORE = ["score", "{inputs}/net.py:Net", "--threats", "clean"]
ON_GOOD = ["--data", "{inputs}/good.npz"]
MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    # names
    "command": (["scor"], ["no command named 'scor'", "Did you mean 'score', "]),
    "option": (["score", "--treats", "clean"], ["'--treats'", "'--threats'", "'robustkpca score --help' shows how"]),
    "kind": (["list", "model"], ["'model'", "'models'", "'robustkpca list --help'"]),
    "no kind": (["list"], ["KIND", "models", "'robustkpca list --help' shows how"]),
    "pattern": (["list", "models", "zzz"], ["no models match 'zzz'", "'robustkpca list models' shows all"]),
    "model": (["score", "symvit_digit"], ["no model named 'symvit_digit'", "Did you mean 'symvit_digits'"]),
    "model argument": (["score", "symvit_digits(deph=3)"], ["'deph'", "Did you mean 'depth'"]),
    "timm model": (["score", "timm/resnet1"], ["resnet1", "resnet18"]),
    "threat": ([*SCORE[:2], "--threats", "pdg@linf:0.1"], ["no threat named 'pdg'", "Did you mean 'pgd'"]),
    "board as threat": ([*SCORE[:2], "--threats", "quik"], ["no threat named 'quik'", "Did you mean 'quick'"]),
    "threat option": ([*SCORE[:2], "--threats", "pgd(step=3)@linf:0.1"], ["'step'", "Did you mean 'steps'"]),
    "no threat": (["score", "symvit_digits", "--threats"], ["at least one threat or board", "'pgd@linf:8/255'"]),
    "swallowed model": (
        ["score", "--threats", "clean", "symvit_digits"],
        ["takes every word that follows", "the model 'symvit_digits'", "write MODELs before it"],
    ),
    "swallowed file": (["score", "--threats", "clean", "a/net.py:Net"], ["'a/net.py:Net'", "write MODELs before it"]),
    "benchmark": ([*SCORE, "--benchmark", "digit"], ["no benchmark named 'digit'", "Did you mean 'digits'"]),
    "format": (["leaderboard", "{results}", "--format", "markdwn"], ["'markdwn'", "Did you mean 'markdown'"]),
    "board": (["leaderboard", "{results}", "--board", "quik"], ["no board named 'quik'", "Did you mean 'quick'"]),
    # options
    "budget": ([*SCORE[:2], "--threats", "pgd@linf:8/0"], ["'linf:8/0'", "NORM:RADIUS", "'linf:8/255'"]),
    "negative budget": ([*SCORE[:2], "--threats", "pgd@l2:-1"], ["'l2:-1'", "expected 0 or more"]),
    "no budget": ([*SCORE[:2], "--threats", "pgd"], ["'pgd'", "needs a budget", "write 'pgd@linf:8/255'"]),
    "norm": ([*SCORE[:2], "--threats", "pgd@l7:1"], ["'l7:1'", "NORM one of linf, l2, l1"]),
    "steps": ([*SCORE[:2], "--threats", "pgd(steps=0)@l2:1"], ["steps", "at least 1", "0"]),
    "batch size": ([*SCORE, *ON_GOOD, "--batch-size", "0"], ["--batch-size '0'", "from 1 up, or auto"]),
    "batch word": ([*SCORE, *ON_GOOD, "--batch-size", "big"], ["--batch-size 'big'", "from 1 up, or auto"]),
    "limit": ([*SCORE, *ON_GOOD, "--limit", "0"], ["--limit 0", "expected a whole number from 1 up"]),
    "limit word": ([*SCORE, *ON_GOOD, "--limit", "few"], ["'--limit'", "'few'", "integer", "--help' shows how"]),
    "seed": ([*SCORE, *ON_GOOD, "--seed", "-3"], ["--seed -3", "expected a whole number from 0 up"]),
    "shard size": ([*SCORE, *ON_GOOD, "--shard-size", "0"], ["--shard-size 0", "from 1 up"]),
    "classes": ([*SCORE, *ON_GOOD, "--classes", "0"], ["--classes 0", "from 1 up"]),
    "device": ([*SCORE, *ON_GOOD, "--device", "gpu"], ["device 'gpu'", "expected cpu, cuda or cuda:N"]),
    "device without passes": (
        [*SCORE, *ON_GOOD, "--device", "meta"],
        ["device 'meta'", "expected cpu, cuda or cuda:N"],
    ),
    "device elsewhere": ([*SCORE, *ON_GOOD, "--device", "mps"], ["device 'mps'", "expected cpu, cuda or cuda:N"]),
    "dtype": ([*SCORE, *ON_GOOD, "--dtype", "int8"], ["'int8'", "'float32'", "'robustkpca score --help' shows how"]),
    "protocol": ([*SCORE, *ON_GOOD, "--protocol", "pixels"], ["'pixels'", "'pixel'", "'published'"]),
    "preprocessing": ([*SCORE, *ON_GOOD, "--preprocessing", "crp=3"], ["'crp=3'", "names among channels, crop"]),
    "checkpoint alone": (
        ["score", "--checkpoint", "a.pth"],
        ["--checkpoint belongs to a MODEL", "none is named", "write 'robustkpca score MODEL --checkpoint ...'"],
    ),
    "one checkpoint": (
        ["score", "symvit_digits", "softmax_vit_digits", "--checkpoint", "a.pth"],
        ["--checkpoint belongs to one MODEL, got 2", "their own in --config"],
    ),
    "averages of nothing": ([*SCORE, *ON_GOOD, "--use-ema"], ["--use-ema", "come from a checkpoint", "--checkpoint"]),
    "twice": ([*SCORE, *ON_GOOD, "{inputs}/net.py:Net"], ["named twice with the same weights", "name it once"]),
    "no data": ([*SCORE, "--benchmark", "imagenet"], ["no data", "imagenet needs a folder", "--data DIR"]),
    # files
    "results file": ([*SCORE, *ON_GOOD, "--out", "{inputs}/file"], ["{inputs}/file is a file", "expected a folder"]),
    "results below a file": ([*SCORE, *ON_GOOD, "--out", "{inputs}/file/a"], ["{inputs}/file/a", "cannot be written"]),
    "results as table": (
        [*SCORE, *ON_GOOD, "--out", "table.json"],
        ["--out table.json", "expected a results folder", "'robustkpca leaderboard --out table.json'"],
    ),
    "table as folder": (["leaderboard", "{results}", "--out", "{inputs}"], ["--out {inputs}", "expected a file"]),
    "no results": (["show", "nowhere"], ["no results in nowhere", "expected records/", "'robustkpca score'"]),
    "no results by default": (["leaderboard"], ["no results in results", "'robustkpca score'"]),
    "one folder without": (["leaderboard", "{results}", "nowhere"], ["no results in nowhere"]),
    "results in a file": (["show", "{inputs}/file"], ["{inputs}/file is a file", "expected a folder"]),
    "no config": (["score", "--config", "nowhere.yaml"], ["config nowhere.yaml: No such file", "expected a YAML file"]),
    "config no yaml": (["score", "--config", "{inputs}/no_yaml.yaml"], ["no_yaml.yaml is no YAML", "line 2"]),
    "config list": (["score", "--config", "{inputs}/list.yaml"], ["expected a mapping such as", "got list"]),
    "config option": (
        ["score", "--config", "{inputs}/unknown.yaml"],
        ["config {inputs}/unknown.yaml: model: no option named 'model'", "Did you mean 'models'?"],
    ),
    "config inner option": (
        ["score", "--config", "{inputs}/inner.yaml"],
        ["models.0.checkpont: no option named 'checkpont'", "Did you mean 'checkpoint'?"],
    ),
    "config value": (["score", "--config", "{inputs}/bad_value.yaml"], ["bad_value.yaml: limit 0", "from 1 up"]),
    "option over config": (["score", "--config", "{inputs}/good.yaml", "--limit", "-1"], ["--limit -1", "from 1 up"]),
    # data
    "no folder": (
        [*SCORE, "--data", "{inputs}/phots"],
        ["no data at '{inputs}/phots'", "Did you mean '{inputs}/photos'?"],
    ),
    "empty folder": ([*SCORE, "--data", "{inputs}/empty"], ["{inputs}/empty", "is empty", "expected class folders"]),
    "other file": ([*SCORE, "--data", "{inputs}/net.py"], ["{inputs}/net.py", "expected a folder of images"]),
    "cut archive": ([*SCORE, "--data", "{inputs}/cut.npz"], ["{inputs}/cut.npz", "cannot be read", "save it again"]),
    "bytes as floats": (
        [*SCORE, "--data", "{inputs}/bytes_as_floats.npz"],
        ["from 0.0", "to 25", "expected [0, 1]", "divide by 255"],
    ),
    "normalised": (
        [*SCORE, "--data", "{inputs}/normalised.npz"],
        ["from -1.99", "to 1.99", "expected [0, 1]", "Already normalised?", "--preprocessing 'mean="],
    ),
    "holes": ([*SCORE, "--data", "{inputs}/holes.npz"], ["NaN", "expected [0, 1]", "remove the broken images"]),
    "negative label": (
        [*SCORE, "--data", "{inputs}/negative.npz"],
        ["label -1 out of range from 0", "leave those out"],
    ),
    "label outside": (
        [*SCORE, "--data", "{inputs}/from_one.npz", "--classes", "10"],
        ["label 10 out of range 0..9", "do the labels count from 1? Subtract 1"],
    ),
    "half labels": ([*SCORE, "--data", "{inputs}/halves.npz"], ["float64", "0.5", "expected whole numbers from 0"]),
    # models
    "no file": (["score", "nowhere.py:Net", *ON_GOOD], ["nowhere.py", "cannot be read", "path/to/file.py:function"]),
    "no function": (["score", "{inputs}/net.py:Nets", *ON_GOOD], ["'Nets'", "Did you mean 'Net'"]),
    "function fails": (
        ["score", "{inputs}/broken.py:build", *ON_GOOD],
        ["raised RuntimeError in line 2", "first line second line"],
    ),
    "no number": (
        ["score", "{inputs}/net.py:Net(ending=holes)", *ON_GOOD],
        ["gives NaN or infinite logits", "expected finite logits", "weights"],
    ),
    "probabilities": (
        ["score", "{inputs}/net.py:Net(ending=softmax)", *ON_GOOD],
        ["gives probabilities", "expected logits", "Remove its final softmax"],
    ),
    "class count": (
        ["score", "{inputs}/net.py:Net(classes=7)", *ON_GOOD],
        ["7 outputs", "10 classes", "expected the same number", "num_classes=10"],
    ),
    "thousand classes": (
        ["score", "{inputs}/net.py:Net(classes=1000)", *ON_GOOD],
        ["1000 outputs", "10 classes", "expected the same number"],
    ),
    "image size": (
        ["score", "{inputs}/net.py:Net(pixels=60)", *ON_GOOD],
        ["cannot take images of 1x8x8", "change it with --preprocessing"],
    ),
    "no checkpoint": ([*SCORE, *ON_GOOD, "--checkpoint", "nowhere.pth"], ["checkpoint nowhere.pth", "no such file"]),
    "cut checkpoint": (
        [*SCORE, *ON_GOOD, "--checkpoint", "{inputs}/cut.pth"],
        ["cut.pth: is truncated", "700 bytes", "download or save it again"],
    ),
    "page": ([*SCORE, *ON_GOOD, "--checkpoint", "{inputs}/page.pth"], ["page.pth: is an HTML page", "download"]),
    "code": (
        [*SCORE, *ON_GOOD, "--checkpoint", "{inputs}/code.pth"],
        ["code.pth", "run code", "posix.system", "torch.save(model.state_dict(), FILE)"],
    ),
    "missing weights": (
        [*SCORE, *ON_GOOD, "--checkpoint", "{inputs}/missing.pth"],
        ["missing.pth", "linear.bias", "Is the model right?"],
    ),
    "weights left over": (
        [*SCORE, *ON_GOOD, "--checkpoint", "{inputs}/extra.pth"],
        ["extra.pth", "another.weight", "Is the model right?"],
    ),
    "other head": ([*SCORE, *ON_GOOD, "--checkpoint", "{inputs}/seven.pth"], ["has 7 classes", "num_classes=7"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_ends_with_two(
    run: Run, inputs: Path, results: Path, tmp_path: Path, mistake: str
) -> None:
    words, expected = MISTAKES[mistake]
    names = {"inputs": str(inputs), "results": str(results)}
    done = run(*(word.format(**names) for word in words))
    assert (done.code, done.out) == (2, "")
    (line,) = done.lines
    assert line.startswith("robustkpca: ")
    for part in expected:
        assert part.format(**names) in line
    assert not shards(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_a_device_that_is_not_there_is_named(run: Run, inputs: Path) -> None:
    done = run("score", f"{inputs}/net.py:Net", "--data", inputs / "good.npz", "--device", "cuda:1")
    assert done.code == 2
    assert done.lines == [
        "robustkpca: device 'cuda:1' is not there: torch sees 0 CUDA devices; use --device cpu",
    ]


def test_a_fault_of_ours_keeps_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    def faulty(folder: str) -> None:
        raise ZeroDivisionError(folder)

    monkeypatch.setattr("robustkpca.summary.summary", faulty)
    monkeypatch.setattr(sys, "argv", ["robustkpca", "show", str(results)])
    with pytest.raises(ZeroDivisionError):
        commands.main()


# Streams and leaving


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_table_that_finds_no_room_is_one_line(tmp_path: Path) -> None:
    done = process("sh", "-c", f"'{sys.executable}' -m robustkpca list attacks > /dev/full", cwd=tmp_path)
    assert (done.code, done.lines) == (2, ["robustkpca: the output cannot be written: No space left on device"])


def test_without_a_standard_output_nothing_is_printed_and_nothing_breaks(tmp_path: Path) -> None:
    done = process("sh", "-c", f"'{sys.executable}' -m robustkpca list attacks >&-", cwd=tmp_path)
    assert (done.code, done.lines) == (0, [])


def left(monkeypatch: pytest.MonkeyPatch, leave: Callable[[], None]) -> int | str | None:
    """Return the exit code of a command that ends in a certain way."""
    monkeypatch.setattr(commands.cli, "main", lambda **_: leave())
    with pytest.raises(SystemExit) as ended:
        commands.main()
    return ended.value.code


def test_code_that_ends_the_program_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert left(monkeypatch, lambda: sys.exit(0)) == 2
    assert "a model or a plug-in ended the program with sys.exit(0)" in capsys.readouterr().err


def test_a_reader_that_has_gone_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            sys.exit(1)

    assert left(monkeypatch, leave) == 0


def test_an_interrupt_while_modules_are_imported_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "robustkpca.commands", Slow("robustkpca.commands"))
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "robustkpca: interrupted\n")


@pytest.mark.parametrize("option", ["--checkpoint", "--data", "--config", "--threats", "--benchmark"])
def test_an_option_left_empty_is_named(option: str, run: Run) -> None:
    done = run("score", "symvit_digits", option, "")
    assert (done.code, len(done.lines)) == (2, 1)
    assert f"{option} is empty" in done.err


def test_threats_that_nobody_named_are_said_to_be_taken(run: Run, inputs: Path) -> None:
    done = run("score", "symvit_digits", "--data", inputs / "good.npz", "--limit", "2")
    assert "no threats are named: taking those of the board quick, radii included" in done.err


def test_a_short_training_is_written_continued_and_scored(run: Run) -> None:
    model = "vit_digits(depth=1,embed_dim=12)"
    first = run(
        "train", model, "--data", "digits/train", "--recipe", "digits(epochs=1,batch_size=256)", "--out", "net.pth"
    )
    assert (first.code, first.out.strip()) == (0, "net.pth")
    assert re.search(r"epoch 1 of 1: mean loss \d", first.err)
    again = run(
        "train", model, "--data", "digits/train", "--recipe", "digits(epochs=1,batch_size=256)", "--out", "net.pth"
    )
    assert (again.code, "1 of 1 epochs are there" in again.err) == (0, True)
    other = run("train", model, "--data", "digits/train", "--recipe", "digits(epochs=2)", "--out", "net.pth")
    assert (other.code, len(other.lines)) == (2, 1)
    assert run("score", model, "--checkpoint", "net.pth", "--threats", "clean", "--limit", "8", "-q").code == 0
