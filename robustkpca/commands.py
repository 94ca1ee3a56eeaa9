"""The verbs of the command line: options become values, one function of the library runs, the result is printed.

Nothing here imports torch before a model has to run.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from robustkpca import registry
from robustkpca.errors import BadValue, UserError, unknown
from robustkpca.terminal import print_grid, print_tables

KINDS = {
    "models": "models",
    "attacks": "attacks",
    "corruptions": "corruptions",
    "benchmarks": "benchmarks",
    "boards": "leaderboards",
}
DONE, INCOMPLETE, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
TABLE_FILES = frozenset({".json", ".csv", ".md", ".tex", ".html"})


class _Verbs(click.Group):
    """Answers an unknown verb with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


class _Greedy(click.Command):
    """Lets ``--threats`` take every word up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        position = 0
        while position < len(args):
            if args[position] != "--threats":
                spread.append(args[position])
                position += 1
                continue
            position += 1
            start = position
            while position < len(args) and not args[position].startswith("-"):
                spread += ["--threats", args[position]]
                position += 1
            if start == position:
                raise click.UsageError("--threats needs at least one threat or board, such as 'pgd@linf:8/255'", ctx)
        return super().parse_args(ctx, spread)


class _Lines(logging.Handler):
    """Writes each remark as a line of stderr, above the progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(record.getMessage())


def main() -> None:
    """Run the command line, and turn every outcome into its exit code."""
    # Read when torch is imported. Threads that wait by spinning make small networks many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):  # a terminal without the letters of a name must not stop a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    lines = _Lines()
    log = logging.getLogger("robustkpca")
    log.addHandler(lines)
    try:
        sys.exit(_outcome())
    finally:
        log.removeHandler(lines)


def _outcome() -> int:
    try:
        return cli.main(prog_name="robustkpca", standalone_mode=False) or DONE
    except UserError as error:
        _say(str(error))
        return WRONG_INPUT
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        mend = f"; '{context.command_path} --help' shows how" if context else ""
        _say(error.format_message().rstrip(".") + mend)
        return WRONG_INPUT
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted; the same command continues where it stopped")
        return INTERRUPTED
    except SystemExit:  # click and rich leave in this way when the reader of a pipe has gone
        return DONE


def _say(message: str) -> None:
    """Write one line to stderr."""
    print(f"robustkpca: {' '.join(message.split())}", file=sys.stderr)


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="robustkpca", prog_name="robustkpca")
@click.pass_context
def cli(context: click.Context) -> None:
    """Evaluate the robustness of PyTorch models, sample by sample.

    \b
    robustkpca score                                     the bundled models on the bundled digits
    robustkpca score timm/resnet18 --checkpoint r18.pth --benchmark imagenet --data /data/imagenet --threats linf
    robustkpca leaderboard --format markdown             the table of what ./results holds
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command(cls=_Greedy)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--checkpoint", metavar="FILE", help="Weights of the one MODEL: .pth, .pt or .safetensors.")
@click.option("--use-ema", is_flag=True, help="Take the averaged weights of the checkpoint.")
@click.option(
    "--preprocessing",
    metavar="TEXT",
    help="Change the model's own, e.g. 'resize=256,crop=224,mean=[0,0,0],std=[1,1,1]'.",
)
@click.option(
    "--dtype", type=click.Choice(["float32", "float64", "float16", "bfloat16"]), help="Precision of the passes."
)
@click.option("--benchmark", metavar="NAME", help="Data, models and board that belong together; default digits.")
@click.option("--data", metavar="DIR", help="A folder of images, or an npy/npz file.")
@click.option("--classes", type=int, metavar="K", help="For data that lack samples of the last of their K classes.")
@click.option(
    "--threats",
    multiple=True,
    metavar="NAME|TEXT ...",
    help="Boards or threats, e.g. linf, or clean 'pgd(steps=50)@linf:8/255'.",
)
@click.option(
    "--protocol", type=click.Choice(["pixel", "published"]), help="For threats that do not say; default pixel."
)
@click.option("--limit", type=int, metavar="N", help="Only N samples, chosen by a hash of their ids.")
@click.option("--seed", type=int, metavar="S", help="Key of the random streams; default 0.")
@click.option("--batch-size", metavar="N|auto", help="Most images of one pass; results do not depend on it.")
@click.option("--shard-size", type=int, metavar="N", help="Samples that are written at once; default 256.")
@click.option("--device", metavar="D", help="cpu, cuda, cuda:1, ...; default cpu.")
@click.option("--config", metavar="FILE", help="YAML with the same names; options on the command line win.")
@click.option(
    "--out", default="results", show_default=True, metavar="DIR", help="Results folder; what it holds is not run again."
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def score(models: tuple[str, ...], config: str | None, out: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Score MODELs under threats and print the leaderboard.

    \b
    robustkpca score
    robustkpca score symvit_digits 'rpc_symvit_digits(iterations=6)' --threats clean pgd@linf:0.1
    robustkpca score net.py:build --checkpoint net.pth --data photos/ --threats linf --limit 500
    robustkpca score 'timm/vit_tiny_patch16_224' --benchmark imagenet --data imagenet/ --threats published/pgd@linf:6/255
    """
    from robustkpca.matrix import Matrix

    folder = Path(out)
    if folder.suffix.lower() in TABLE_FILES:
        raise BadValue(
            f"--out {out}: expected a results folder; write a table with 'robustkpca leaderboard --out {out}'"
        )
    given = _given(models, options)
    Matrix.of("options", **given)
    matrix = Matrix.of(f"config {config}", **Matrix.read(config) | given) if config else Matrix.of("options", **given)
    from robustkpca.progress import TerminalReporter

    with TerminalReporter(quiet=quiet) as reporter:
        from robustkpca.evaluation import run_matrix

        run = run_matrix(matrix, folder, reporter)
    from robustkpca.boards import leaderboard as fill

    tables = fill(run.frame(), run.board)
    print_tables(tables, "json" if as_json else "")
    whole = all(cell.value is not None for table in tables for row in table.rows for cell in row.cells)
    if not whole:
        _say(f"some cells have no value; 'robustkpca show {shlex.quote(out)}' lists why")
    return DONE if whole else INCOMPLETE


def _given(models: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the matrix that the command line names."""
    model_options = {name: options.pop(name) for name in ("checkpoint", "use_ema", "preprocessing", "dtype")}
    model_options = {name: value for name, value in model_options.items() if value}
    values = {name: value for name, value in options.items() if value not in (None, ())}
    if model_options and not models:
        option = f"--{next(iter(model_options)).replace('_', '-')}"
        raise BadValue(f"{option} belongs to a MODEL, and none is named; write 'robustkpca score MODEL {option} ...'")
    if "checkpoint" in model_options and len(models) > 1:
        raise BadValue(
            f"--checkpoint belongs to one MODEL, got {len(models)}; give several models their own in --config"
        )
    if models:
        values["models"] = [{"name": name} | model_options for name in models]
    return values


@cli.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option("--board", metavar="NAME", help="A registered board; without it one column for each threat.")
@click.option(
    "--format", "form", default="", metavar="FORMAT", help="markdown, csv or json; default drawn, or markdown."
)
@click.option("--out", metavar="FILE", help="Write here instead of printing.")
def leaderboard(folders: tuple[str, ...], board: str | None, form: str, out: str | None) -> None:
    """Print the leaderboard of what results folders hold; ./results where none is named.

    \b
    robustkpca leaderboard --format markdown
    robustkpca leaderboard results --board quick --format csv --out quick.csv
    """
    from robustkpca.boards import leaderboard as fill
    from robustkpca.formats import render
    from robustkpca.store import read

    tables = fill(read(*(folders or ("results",))), board)
    if out is None:
        print_tables(tables, form)
        return
    try:
        Path(out).write_text(render(tables, form or "markdown"), encoding="utf-8")
    except OSError as error:
        raise BadValue(f"--out {out}: {error.strerror}; expected a file that can be written") from None


@cli.command("list")
@click.argument(
    "kind",
    type=click.Choice(["models", "threats", "attacks", "corruptions", "benchmarks", "boards"]),
    metavar="KIND",
)
@click.argument("pattern", default="", metavar="[PATTERN]")
@click.option("--tag", metavar="TAG", help="Only entries with this tag.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_(kind: str, pattern: str, tag: str | None, as_json: bool) -> None:
    """List what is registered, with a line on each; PATTERN filters by name.

    KIND is models, threats, attacks, corruptions, benchmarks or boards.

    \b
    robustkpca list models
    robustkpca list attacks --tag gradient
    robustkpca list models timm/vit
    """
    rows = [
        {"name": name, "summary": entry.summary, "source": entry.source, "tags": list(entry.tags), "from": entry.origin}
        for name, entry in _entries(kind, pattern).items()
        if pattern.lower() in name.lower() and (tag is None or tag in entry.tags)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows and not (pattern or tag):
        _say(f"no {kind} are registered")
        return
    if not rows:
        raise BadValue(
            f"no {kind} match {pattern!r}{f' with tag {tag!r}' if tag else ''}; 'robustkpca list {kind}' shows all"
        )
    lines = [[str(row[field]) for field in ("name", "summary", "source")] + [" ".join(row["tags"])] for row in rows]
    print_grid(["name", "what it is", "source", "tags"], lines)


def _entries(kind: str, pattern: str) -> dict[str, registry.Entry]:
    source = pattern.partition("/")[0]
    if kind == "models" and pattern.startswith(("timm/", "torchvision/", "robustbench/")):
        from robustkpca.models import list_models

        entry = registry.Entry("", f"model of {source}", source, (source,))
        return {name: entry for name in list_models(pattern)}
    if kind == "threats":
        clean = {"clean": registry.Entry("", "the samples as they are", "", ("baseline",))}
        return clean | registry.entries("attacks") | registry.entries("corruptions")
    return registry.entries(KINDS[kind])


@cli.command()
@click.argument("model", metavar="MODEL")
@click.option("--checkpoint", metavar="FILE", help="Weights: .pth, .pt or .safetensors.")
@click.option("--use-ema", is_flag=True, help="Take the averaged weights of the checkpoint.")
@click.option(
    "--data", default="digits", show_default=True, metavar="DIR", help="A folder of images, or an npy/npz file."
)
@click.option("--limit", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Only N images.")
@click.option("--standardise", is_flag=True, help="Standardise queries and keys, as the published measurement does.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Of the random axes of the control.")
@click.option("--json", "as_json", is_flag=True, help="Print every head as JSON.")
@click.option("--plots", metavar="DIR", help="Write figures there; needs the extra 'plots'.")
def diagnose(model: str, checkpoint: str | None, as_json: bool, plots: str | None, **options: Any) -> None:
    """Measure what kernel PCA says of the heads of MODEL, layer by layer, and which claims that supports.

    \b
    robustkpca diagnose rpc_symvit_digits
    robustkpca diagnose timm/deit_tiny_patch16_224 --checkpoint deit.pth --data imagenet/ --limit 4 --plots figures
    """
    from robustkpca.data import open_data
    from robustkpca.data.selection import selection
    from robustkpca.diagnosis import MEASURES, TRACE
    from robustkpca.diagnosis import diagnose as run
    from robustkpca.models import load_model

    classifier = load_model(model, checkpoint, use_ema=options["use_ema"])
    dataset = open_data(options["data"])
    images = dataset.read(selection(dataset.ids, options["limit"]), classifier.spec.preprocessing)
    found = run(classifier, images, standardise=options["standardise"], seed=options["seed"])
    if plots:
        from robustkpca.diagnosis_plots import draw

        for path in draw(found, Path(plots)):
            _say(f"wrote {path}")
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
        return
    layers, traced = found.layers(), [head for head in found.heads if head.passes]
    titles = ["measure", *(f"layer {index}" for index in range(len(layers)))]
    print_grid(titles, [[text, *(f"{layer[name]:.3g}" for layer in layers)] for name, text in MEASURES.items()])
    if traced:
        click.echo()
        titles = ["pursuit", *(f"pass {index + 1}" for index in range(max(len(head.passes) for head in traced)))]
        lines = [
            [f"layer {head.layer}, head {head.head}: {text}", *(f"{one[name]:.3g}" for one in head.passes)]
            for head in traced
            for name, text in TRACE.items()
        ]
        print_grid(titles, lines)
    for claim in found.claims():
        click.echo(
            f"\n{claim['claim']}: {claim['here']} here ({claim['numbers']}). Reproduction study: {claim['study']}."
        )


@cli.command()
@click.argument("model", metavar="MODEL")
@click.option(
    "--data", required=True, metavar="DIR", help="Training images: a folder, an npy/npz file, or digits/train."
)
@click.option("--recipe", default="digits", show_default=True, metavar="TEXT", help="digits, deit or fan, with fields.")
@click.option(
    "--adversary", default="", metavar="TEXT", help="Train on attacked images, e.g. 'pgd(steps=7)@linf:8/255'."
)
@click.option("--device", default="cpu", show_default=True, metavar="D", help="cpu, cuda, cuda:1, ...")
@click.option("--out", required=True, metavar="FILE", help="The checkpoint; one of the same training is continued.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def train(model: str, data: str, recipe: str, adversary: str, device: str, out: str, quiet: bool) -> None:
    """Train MODEL and write a checkpoint that 'score --checkpoint' reads.

    \b
    robustkpca train symvit_digits --data digits/train --out symvit.pth
    robustkpca train 'vit_tiny(attention=rpc,drop_path=0.1)' --data imagenet/train --recipe deit --device cuda --out rpc.pth
    robustkpca train symvit_digits --data digits/train --adversary 'pgd(steps=7)@linf:0.1' --out robust.pth
    """
    from robustkpca.data import open_data
    from robustkpca.training import Training
    from robustkpca.training import train as run

    def report(epoch: int, total: int, loss: float) -> None:
        if not quiet:
            _say(f"epoch {epoch} of {total}: mean loss {loss:.4f}")

    run(Training(model, open_data(data), recipe, adversary, device), out, report=report)
    click.echo(out)


@cli.command()
@click.argument("folder", default="results", metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(folder: str, as_json: bool) -> None:
    """Show what a results folder holds and what is missing; ./results where none is named.

    \b
    robustkpca show
    robustkpca show results --json
    """
    from robustkpca.summary import summary

    rows = summary(folder)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    titles = list(rows[0])
    print_grid(titles, [[str(row[title]) for title in titles] for row in rows])
