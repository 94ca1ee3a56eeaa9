"""A name becomes a network: from the registry, from timm, or from a user's file. Importing this imports no torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import version
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from robustkpca.calls import Call, Value, complete, format_value, parse_value
from robustkpca.errors import BadValue, Unusable, UserError
from robustkpca.models.announced import announced_preprocessing
from robustkpca.preprocessing import Preprocessing
from robustkpca.registry import entries, find

if TYPE_CHECKING:  # annotations only: the command line must list models without importing torch
    from torch import nn

TIMM = "timm/"
TORCHVISION = "torchvision/"
HUGGINGFACE = "huggingface/"
ROBUSTBENCH = "robustbench/"
FILE = ".py:"


@dataclass(frozen=True)
class Built:
    """A network, and what is known of it from where it came from.

    Args:
        network: With initial weights.
        preprocessing: Its own.
        canonical_name: Its name with all arguments; for timm and for files, those that were given.
        label: Its name with the arguments that were given.
        code_origin: ``package==version``, or ``sha256:`` and the digest of the file.
    """

    network: nn.Module
    preprocessing: Preprocessing
    canonical_name: str
    label: str
    code_origin: str


def create_model(name: str, **overrides: Any) -> nn.Module:
    """Build a network with initial weights, the same ones every time.

    The weights are drawn under seed 0, and the global generators of torch, numpy and Python are left as they were. The
    result is the bare network: it expects images normalised as its ``preprocessing`` says.

    Args:
        name: A name of the registry, ``timm/<name>``, ``torchvision/<name>``, ``huggingface/<folder>``,
            ``robustbench/<dataset>/<threat>/<name>``, or ``path/to/file.py:function``, each with or without arguments:
            ``rpc_symvit_tiny(iterations=6,layers=0)``.
        **overrides: Further arguments; they win over those in ``name``.

    Returns:
        The network, with the other fields of `Built` as attributes, as far as it has no parts of these names.

    Raises:
        UnknownName: If nothing has that name, or an argument is unknown.
        BadValue: If an argument cannot be used.
        Unusable: If a plug-in or a file fails.
    """
    built = build_model(name, **overrides)
    for attribute in ("preprocessing", "canonical_name", "label", "code_origin"):
        with suppress(AttributeError, TypeError):  # a layer or a property of the user's may have this name
            setattr(built.network, attribute, getattr(built, attribute))
    return built.network


def build_model(name: str, seed: int = 0, **overrides: Any) -> Built:
    """Build a network as `create_model`, but under a seed of choice, and leave it as it is."""
    from robustkpca.models.initialisation import reproducible

    file, call = _parsed(name)
    given = call.with_arguments(**{argument: _value(argument, value) for argument, value in overrides.items()})
    with reproducible(seed):
        if file:
            model, full, origin = _from_file(file, given)
        elif given.name.startswith(TIMM):
            model, full, origin = _from_timm(given)
        elif given.name.startswith((TORCHVISION, HUGGINGFACE, ROBUSTBENCH)):
            model, full, origin = _from_elsewhere(given)
        else:
            model, full, origin = _from_registry(given)
    shown = PurePath(file).name  # with the digest of the file it is the same model wherever the file lies
    return Built(model, announced_preprocessing(model, given.name), f"{shown}{full}", f"{shown}{given}", origin)


def list_models(pattern: str = "") -> list[str]:
    """List the names of models, sorted.

    Args:
        pattern: A part of the name, or a pattern with ``*``. The models of timm, torchvision and RobustBench are listed only
            if it starts with ``timm/``, ``torchvision/`` or ``robustbench/``.
    """
    if pattern.startswith(TORCHVISION):
        from robustkpca.models.torchvision_models import names

        return [f"{TORCHVISION}{name}" for name in names() if _matches(name, pattern.removeprefix(TORCHVISION))]
    if pattern.startswith(ROBUSTBENCH):
        from robustkpca.models.robustbench_models import model_zoo

        zoo = model_zoo()
        paths = [f"{data}/{threat}/{name}" for data in zoo for threat in zoo[data] for name in zoo[data][threat]]
        return [f"{ROBUSTBENCH}{path}" for path in sorted(paths) if _matches(path, pattern.removeprefix(ROBUSTBENCH))]
    if pattern.startswith(TIMM):
        import timm

        return [f"{TIMM}{name}" for name in timm.list_models() if _matches(name, pattern.removeprefix(TIMM))]
    return [name for name in sorted(entries("models")) if _matches(name, pattern)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if any(sign in pattern for sign in "*?[") else pattern in name


def _parsed(name: str) -> tuple[str, Call]:
    """Split off the path of a file, which may hold any character, from the name and its arguments."""
    path, separator, rest = name.strip().partition(FILE)
    return (path + separator, Call.parse(rest)) if separator else ("", Call.parse(path))


def _value(argument: str, value: Any) -> Value:
    """Bring an argument from Python to what its text would be read as."""
    value = tuple(value) if isinstance(value, list) else value
    try:
        read = parse_value(format_value(value))
    except BadValue:
        read = ()
    if read != value:
        raise BadValue(f"{argument} is {value!r}; expected a number, a truth value, None, a word, or a list of these")
    return read


def _from_registry(given: Call) -> tuple[nn.Module, Call, str]:
    if given.name.endswith(".py"):
        raise BadValue(
            f"model {given.name!r}: a file needs the name of what builds the network; write '{given.name}:FUNCTION'"
        )
    entry = find("models", given.name)
    function = entry.function()
    full = complete(given, function, "model")
    try:
        model = function(**full.arguments)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a stranger's function may fail in any way; the cause stays attached
        if entry.origin.startswith("robustkpca=="):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise Unusable(f"model {given} from {entry.origin} cannot be built: {reason}") from error
    if not callable(getattr(model, "state_dict", None)):
        raise Unusable(
            f"model {given.name} from {entry.origin}: the result is a {type(model).__name__}, not an nn.Module"
        )
    return model, full, entry.origin


def _from_timm(given: Call) -> tuple[nn.Module, Call, str]:
    import timm

    from robustkpca.models.replacement import split_options, with_attention
    from robustkpca.models.timm_models import create

    arguments = {name: value for name, value in given.arguments.items() if (name, value) != ("pretrained", False)}
    own, replacing = split_options(arguments)
    model = create(given.name, **own)
    if replacing:
        prepared = model.preprocessing
        model = with_attention(model, **replacing)
        model.preprocessing = prepared
    usual = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    full = {name: value for name, value in arguments.items() if name != "num_classes" or value != usual.get(name)}
    return model, Call(given.name, full), f"timm=={timm.__version__}"


def _from_elsewhere(given: Call) -> tuple[nn.Module, Call, str]:
    """Build a model of another package; weights that come with it are part of what is built."""
    source, _, rest = given.name.partition("/")
    package = {"huggingface": "transformers"}.get(source, source)
    build = getattr(import_module(f"robustkpca.models.{source}_models"), "create")  # noqa: B009
    arguments = dict(given.arguments)
    if source != "torchvision":
        complete(Call(given.name, arguments), build, "model", given=frozenset({"path", "name"}))
    model = build(rest, **arguments)
    shown = {name: value for name, value in arguments.items() if name != "model_dir"}
    return model, Call(given.name, shown), f"{package}=={version(package)}"


def _from_file(file: str, given: Call) -> tuple[nn.Module, Call, str]:
    from robustkpca.models.file_models import build, source_digest, split_reference

    reference = f"{file}{given.name}"
    digest = source_digest(split_reference(reference)[0])
    model, defaults = build(reference, given.arguments)
    return model, Call(given.name, {**defaults, **given.arguments}), f"sha256:{digest}"
