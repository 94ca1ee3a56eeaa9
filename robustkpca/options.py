"""What several verbs of the command line have in common: the options of a run, exit codes, lines on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from robustkpca.errors import BadValue

if TYPE_CHECKING:  # annotations only: pydantic is imported when a run is described
    from robustkpca.matrix import Matrix

TABLE_FILES = frozenset({".json", ".csv", ".md", ".tex", ".html"})
Verb = TypeVar("Verb", bound=Callable[..., Any])


class Greedy(click.Command):
    """Lets ``--threats`` take every word up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat ``--threats`` before each of its words."""
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


_RUN = (
    click.argument("models", nargs=-1, metavar="[MODEL]..."),
    click.option("--checkpoint", metavar="FILE", help="Weights of the one MODEL: .pth, .pt or .safetensors."),
    click.option("--use-ema", is_flag=True, help="Take the averaged weights of the checkpoint."),
    click.option(
        "--preprocessing",
        metavar="TEXT",
        help="Change the model's own, e.g. 'resize=256,crop=224,mean=[0,0,0],std=[1,1,1]'.",
    ),
    click.option(
        "--dtype", type=click.Choice(["float32", "float64", "float16", "bfloat16"]), help="Precision of the passes."
    ),
    click.option("--benchmark", metavar="NAME", help="Data, models and board that belong together; default digits."),
    click.option("--data", metavar="DIR", help="A folder of images, or an npy/npz file."),
    click.option("--classes", type=int, metavar="K", help="For data that lack samples of the last of their K classes."),
    click.option(
        "--threats",
        multiple=True,
        metavar="NAME|TEXT ...",
        help="Boards or threats, e.g. linf, or clean 'pgd(steps=50)@linf:8/255'.",
    ),
    click.option("--limit", type=int, metavar="N", help="Only N samples, chosen by a hash of their ids."),
    click.option("--seed", type=int, metavar="S", help="Key of the random streams; default 0."),
    click.option("--batch-size", metavar="N|auto", help="Most images of one pass; results do not depend on it."),
    click.option("--shard-size", type=int, metavar="N", help="Samples that are written at once; default 256."),
    click.option(
        "--device", metavar="D", help="cpu, cuda, cuda:1, ...; cuda:0,cuda:1 or all for several; default cpu."
    ),
    click.option("--workers", metavar="W", help="local, local:N processes, ray or ray:ADDRESS; default local."),
    click.option("--config", metavar="FILE", help="YAML with the same names; options on the command line win."),
    click.option(
        "--out",
        default="results",
        show_default=True,
        metavar="DIR",
        help="Results folder; what it holds is not run again.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print as JSON."),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
)


def run_options(verb: Verb) -> Verb:
    """Give a verb the arguments and options that say which models meet which threats on which data."""
    for declare in reversed(_RUN):
        verb = declare(verb)
    return verb


def matrix_fields(models: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `robustkpca.matrix.Matrix` that the command line names.

    Args:
        models: Names.
        options: From `run_options`.

    Raises:
        BadValue: If an option of a model has no model, or several.
    """
    model_options = {name: options.pop(name) for name in ("checkpoint", "use_ema", "preprocessing", "dtype")}
    model_options = {name: value for name, value in model_options.items() if value}
    values = {name: value for name, value in options.items() if value not in (None, ())}
    if model_options and not models:
        option = f"--{next(iter(model_options)).replace('_', '-')}"
        verb = click.get_current_context().info_name
        raise BadValue(f"{option} belongs to a MODEL, and none is named; write 'robustkpca {verb} MODEL {option} ...'")
    if "checkpoint" in model_options and len(models) > 1:
        raise BadValue(
            f"--checkpoint belongs to one MODEL, got {len(models)}; give several models their own in --config"
        )
    if models:
        values["models"] = [{"name": name} | model_options for name in models]
    return values


def matrix_of(models: tuple[str, ...], config: str | None, out: str, options: dict[str, Any]) -> tuple[Matrix, Path]:
    """Return what a command line asks for, and its results folder.

    Args:
        models: Names.
        config: A YAML file with the same fields, or ``None``.
        out: The folder.
        options: From `run_options`; they win over the file.

    Raises:
        BadValue: If a field is unknown or has a wrong value, or the folder looks like the file of a table.
    """
    from robustkpca.matrix import Matrix

    folder = Path(out)
    if folder.suffix.lower() in TABLE_FILES:
        raise BadValue(
            f"--out {out}: expected a results folder; write a table with 'robustkpca leaderboard --out {out}'"
        )
    refuse_empty(config=config, **options)
    given = matrix_fields(models, options)
    Matrix.of("options", **given)
    read = Matrix.of(f"config {config}", **Matrix.read(config) | given) if config else Matrix.of("options", **given)
    return read, folder


def refuse_empty(**options: Any) -> None:
    """Refuse an empty text, as an unset variable of the shell gives; it would be taken for no option at all."""
    for name, value in options.items():
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise BadValue(f"--{name.replace('_', '-')} is empty; give it a value, or leave it out")
