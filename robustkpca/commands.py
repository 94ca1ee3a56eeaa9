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
from robustkpca.errors import BadValue, unknown
from robustkpca.options import Greedy, matrix_of, refuse_empty, run_options
from robustkpca.outcomes import DONE, INCOMPLETE, outcome, say
from robustkpca.terminal import print_grid, print_tables

KINDS = {
    "models": "models",
    "attacks": "attacks",
    "corruptions": "corruptions",
    "benchmarks": "benchmarks",
    "boards": "leaderboards",
}


class _Verbs(click.Group):
    """Answers an unknown verb with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


class _Lines(logging.Handler):
    """Writes each remark as a line of stderr, above the progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def main() -> None:
    """Run the command line, and turn every outcome into its exit code."""
    # Read when torch is imported. Threads that wait by spinning make small networks many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell; no file that is opened later may take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):  # a terminal without the letters of a name must not stop a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    lines = _Lines()
    log = logging.getLogger("robustkpca")
    log.addHandler(lines)
    try:
        sys.exit(outcome(lambda: cli.main(prog_name="robustkpca", standalone_mode=False) or DONE))
    finally:
        log.removeHandler(lines)


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


@cli.command(cls=Greedy)
@click.option(
    "--protocol", type=click.Choice(["pixel", "published"]), help="For threats that do not say; default pixel."
)
@click.option(
    "--engine",
    type=click.Choice(["ours", "official"]),
    help="official runs each threat by the authors' package pyautoattack; default ours.",
)
@click.option("--costs", is_flag=True, help="Passes and seconds per sample beside each column.")
@run_options
def score(
    models: tuple[str, ...], config: str | None, out: str, as_json: bool, quiet: bool, costs: bool, **options: Any
) -> int:
    """Score MODELs under threats and print the leaderboard.

    \b
    robustkpca score
    robustkpca score symvit_digits 'rpc_symvit_digits(iterations=6)' --threats clean pgd@linf:0.1
    robustkpca score net.py:build --checkpoint net.pth --data photos/ --threats linf --limit 500
    robustkpca score 'timm/vit_tiny_patch16_224' --benchmark imagenet --data imagenet/ --threats published/pgd@linf:6/255
    """
    matrix, folder = matrix_of(models, config, out, options)
    from robustkpca.progress import TerminalReporter

    with TerminalReporter(quiet=quiet) as reporter:
        from robustkpca.evaluation import run_matrix

        run = run_matrix(matrix, folder, reporter)
    from robustkpca.boards import leaderboard as fill

    tables = fill(run.frame(), run.board)
    print_tables(tables, "json" if as_json else "", costs=costs)
    whole = all(cell.value is not None for table in tables for row in table.rows for cell in row.cells)
    if not whole:
        say(f"some cells have no value; 'robustkpca show {shlex.quote(out)}' lists why")
    return DONE if whole else INCOMPLETE


@cli.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option(
    "--board", metavar="NAME", help="A registered board, or a .toml file; without it one column for each threat."
)
@click.option(
    "--format",
    "form",
    default="",
    metavar="FORMAT",
    help="markdown, csv, json, latex or html; default drawn, or markdown.",
)
@click.option("--costs", is_flag=True, help="Passes and seconds per sample beside each column.")
@click.option(
    "--radii", metavar="R,R,...", help="Robust accuracy there, from attacks without a radius, e.g. 2/255,8/255."
)
@click.option("--with", "beside", type=click.Choice(["reported"]), help="List the numbers of the papers beside ours.")
@click.option("--check", type=click.Choice(["reported"]), help="Exit with 1 where a comparable number disagrees.")
@click.option("--out", metavar="FILE", help="Write here instead of printing.")
def leaderboard(
    folders: tuple[str, ...],
    board: str | None,
    form: str,
    costs: bool,
    radii: str | None,
    beside: str | None,
    check: str | None,
    out: str | None,
) -> None:
    """Print the leaderboard of what results folders hold; ./results where none is named.

    \b
    robustkpca leaderboard --format markdown
    robustkpca leaderboard results --board quick --format csv --out quick.csv
    robustkpca leaderboard results --format html --out leaderboard.html
    robustkpca leaderboard results --radii 2/255,4/255,8/255
    robustkpca leaderboard results --with reported --format markdown
    robustkpca leaderboard results --check reported
    """
    from robustkpca import reported
    from robustkpca.board_files import SUFFIX, read_board
    from robustkpca.boards import leaderboard as fill
    from robustkpca.boards import spelled
    from robustkpca.formats import render
    from robustkpca.store import read

    if radii and board:
        raise BadValue("--radii adds columns where no --board declares them; leave one of the two out")
    frame = read(*(folders or ("results",)))
    own = (
        spelled(read_board(Path(board)), set(frame["threat_label"].unique()))
        if board and board.endswith(SUFFIX)
        else board
    )
    tables = fill(frame, own, radii=radii.split(",") if radii else ())
    pairs = reported.beside(tables) if beside or check else []
    if out is None and not (beside or check):
        print_tables(tables, form, costs=costs)
        return
    if beside or check:
        text = reported.render_reported(pairs, form or "markdown")
    else:
        text = render(tables, form or "markdown", costs=costs)
    if out is None:
        click.echo(text, nl=False)
    else:
        _write_text(out, text)
    if check:
        say(reported.summary(pairs))
        if any(pair.inside is False for pair in pairs):
            raise SystemExit(1)


def _write_text(out: str, text: str) -> None:
    try:
        Path(out).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadValue(f"--out {out[:100]}: {reason}; expected a file that can be written") from None


@cli.command()
@click.argument("first", metavar="MODEL_A")
@click.argument("second", metavar="MODEL_B")
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def compare(first: str, second: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Test whether two models differ on the samples that both have met; ./results where no folder is named.

    One line for each threat: the difference of the robust accuracies with a paired bootstrap interval, the exact McNemar
    test, and its p-value after Holm's correction for the number of lines.

    \b
    robustkpca compare softmax_vit_digits symvit_digits
    robustkpca compare softmax_vit_digits symvit_digits results --json
    """
    from robustkpca.comparison import compare as test
    from robustkpca.store import read

    found = test(read(*(folders or ("results",))), first, second)
    if as_json:
        click.echo(json.dumps([one.to_dict() for one in found], indent=2))
        return
    titles = list(found[0].to_row())
    print_grid(titles, [[one.to_row()[title] for title in titles] for one in found])
    say(f"first is {first}, second {second}; accuracy in %, difference with 95 % paired bootstrap interval")


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
    refuse_empty(tag=tag)
    rows = [
        {"name": name, "summary": entry.summary, "source": entry.source, "tags": list(entry.tags), "from": entry.origin}
        for name, entry in _entries(kind, pattern).items()
        if pattern.lower() in name.lower() and (tag is None or tag in entry.tags)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows and not (pattern or tag):
        say(f"no {kind} are registered")
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


@cli.command(cls=Greedy)
@click.argument("source")
@click.argument("target", required=False, metavar="[TARGET]")
@click.option("--threats", multiple=True, metavar="NAME|TEXT ...", help="Corruptions; default imagenet-c, all 15.")
@click.option(
    "--preprocessing", metavar="TEXT", help="Resize and crop before, e.g. 'resize=256,crop=224'; default none."
)
@click.option("--quality", type=int, metavar="Q", help="Write JPEG of this quality instead of lossless PNG.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Key of the random streams.")
@click.option("--limit", type=int, metavar="N", help="Only N images, chosen by a hash of their ids.")
@click.option("--preview", metavar="FILE", help="Draw the first image under everything on one sheet.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def corrupt(
    source: str,
    target: str | None,
    threats: tuple[str, ...],
    preprocessing: str | None,
    quality: int | None,
    seed: int,
    limit: int | None,
    preview: str | None,
    quiet: bool,
) -> int:
    """Write a corrupted copy of the images of SOURCE to TARGET, or draw a --preview.

    The copy lies in TARGET/<corruption>/<severity>/<class>/. The same command continues one that was stopped.

    \b
    robustkpca corrupt imagenet/ copy/ --threats fog:3 glass_blur --preprocessing resize=256,crop=224 --limit 500
    robustkpca corrupt photos/ --preview sheet.png --threats 'fog(constants=cifar)' 'snow(constants=cifar)'
    """
    if target is None and preview is None:
        raise BadValue("corrupt: nowhere to write to; name a TARGET folder, or --preview sheet.png")
    from robustkpca.copies import corruptions_of, write_copy, write_preview
    from robustkpca.preprocessing import Preprocessing

    chosen = corruptions_of(threats or ("imagenet-c",))
    geometry = Preprocessing.parse(preprocessing) if preprocessing else None
    if preview is not None:
        write_preview(source, preview, chosen, preprocessing=geometry, seed=seed, limit=limit)
    if target is None:
        return DONE
    done = write_copy(
        source, target, chosen, preprocessing=geometry, quality=quality, seed=seed, limit=limit, quiet=quiet
    )
    say(f"{target}: {done.written} pictures written, {done.found} were there, {done.failed} images could not be read")
    return INCOMPLETE if done.failed else DONE


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
            say(f"wrote {path}")
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
            say(f"epoch {epoch} of {total}: mean loss {loss:.4f}")

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


@cli.command(cls=Greedy)
@run_options
def verify(models: tuple[str, ...], config: str | None, out: str, as_json: bool, quiet: bool, **options: Any) -> int:
    """Run our attacks beside those of the authors' package, and compare them sample by sample.

    Without --threats: Auto-PGD, its targeted form, targeted FAB and Square at linf:8/255; without --limit on 16 samples.
    Ends with 1 where the two differ by more than chance, or a sample could not be judged.

    \b
    robustkpca verify symvit_digits
    robustkpca verify symvit_digits --threats 'apgd_ce(steps=20)@l2:0.25' --limit 50
    """
    matrix, folder = matrix_of(models, config, out, options)
    from robustkpca.progress import TerminalReporter

    with TerminalReporter(quiet=quiet) as reporter:
        from robustkpca.verification import verify as compare

        found = compare(matrix, folder, reporter)
    if as_json:
        click.echo(json.dumps([one.to_dict() for one in found], indent=2))
    else:
        titles = list(found[0].to_row())
        print_grid(titles, [[str(one.to_row()[title]) for title in titles] for one in found])
    for one in found:
        if one.remark:
            say(one.remark)
    return DONE if all(one.agrees for one in found) else INCOMPLETE


@cli.command(cls=Greedy)
@click.option("--records", is_flag=True, help="Look at what --out holds, and run nothing.")
@run_options
def audit(
    models: tuple[str, ...], config: str | None, out: str, as_json: bool, quiet: bool, records: bool, **options: Any
) -> int:
    """Look for signs that the attacks on MODELs fail, so that a model looks more robust than it is.

    Without --threats: a battery at linf:8/255, twice that, and no limit at all; without --limit on 64 samples.
    Ends with 1 where there is a flag. Each flag names its evidence and what to add.

    \b
    robustkpca audit symvit_digits
    robustkpca audit net.py:build --checkpoint net.pth --data photos/
    robustkpca audit --records --out results
    """
    matrix, folder = matrix_of(models, config, out, options)
    from robustkpca.progress import TerminalReporter

    if records and (models or config):
        raise BadValue("--records looks at everything that --out holds; leave MODEL and --config out")
    with TerminalReporter(quiet=quiet or records) as reporter:
        from robustkpca.examination import examine, examine_records

        found = examine_records(folder) if records else examine(matrix, folder, reporter)
    if as_json:
        click.echo(json.dumps([one.to_dict() for one in found], indent=2))
    else:
        rows = []
        for one in found:
            rows += [[one.model, flag.name, flag.evidence, flag.advice] for flag in one.flags]
            if not one.flags:
                rows.append([one.model, "none", f"{one.threats} threats, {one.samples} samples", ""])
        print_grid(["model", "flag", "evidence", "what to do"], rows)
    return INCOMPLETE if any(one.flags for one in found) else DONE
