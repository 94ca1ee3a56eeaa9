"""A corrupted copy of a data set as files: ``TARGET/<corruption>/<severity>/<class>/<image>.png``, as ImageNet-C lies.

A copy can be continued: what is there is not made again, and a copy under other settings is refused. The random numbers are
those of a run with the same seed, so a lossless copy holds the pixels that a run scores on the fly.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from robustkpca import registry
from robustkpca.boards import find_board
from robustkpca.contact_sheet import contact_sheet, save_sheet
from robustkpca.corrupting import corrupted
from robustkpca.data import open_data
from robustkpca.data.dataset import Dataset
from robustkpca.data.imagenet import imagenet_wnids
from robustkpca.data.images import ImageFiles, decoded
from robustkpca.data.selection import selection
from robustkpca.errors import BadValue, Unusable, UserError
from robustkpca.preprocessing import Preprocessing
from robustkpca.threats import ThreatModel, spread

log = logging.getLogger(__name__)

SETTINGS = "corrupted.json"
"""The file in the target that says how its pictures were made."""


@dataclass(frozen=True)
class Copy:
    """What was written.

    Args:
        written: Pictures that were made now.
        found: Pictures that were there already.
        failed: Source images that could not be read.
    """

    written: int
    found: int
    failed: int


def write_copy(
    source: str | Path,
    target: str | Path,
    threats: Sequence[ThreatModel],
    *,
    preprocessing: Preprocessing | None = None,
    quality: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    quiet: bool = True,
) -> Copy:
    """Write the images of a data set under several corruptions.

    Args:
        source: What `robustkpca.data.open_data` opens.
        target: A folder; created where it is missing.
        threats: Corruptions at a severity.
        preprocessing: Resize and crop before the corruption; ``None`` keeps the size of each image.
        quality: Of JPEG files, 1 to 95; ``None`` writes PNG, which loses nothing.
        seed: Key of the random streams.
        limit: Only so many images, chosen by a hash of their ids.
        quiet: Show no progress on stderr.

    Raises:
        UserError: If the source cannot be opened, or the target holds a copy under other settings.
    """
    data = open_data(source)
    if quality is not None and not 1 <= quality <= 95:
        raise BadValue(f"JPEG quality {quality}: expected 1 to 95, or none for lossless PNG")
    for threat in threats:
        if threat.severity is None:
            raise BadValue(f"threat {threat.label!r} is no corruption at a severity; write such as 'fog:3'")
    geometry = preprocessing or Preprocessing()
    folder = Path(target)
    positions = selection(data.ids, limit)
    names = _names(data, "png" if quality is None else "jpg")
    _settle(folder, data, geometry, quality, seed)
    if data.class_names != imagenet_wnids():
        for threat in threats:
            for name in data.class_names:  # an empty class keeps its place
                _made(folder / _place(threat) / name)

    def one(position: int) -> Copy:
        missing = [(threat, folder / _place(threat) / names[position]) for threat in threats]
        missing = [(threat, path) for threat, path in missing if not path.is_file()]
        try:
            if missing:
                pixels = _pixels(data, position, geometry)
                for threat, path in missing:
                    _write(corrupted(pixels, threat, [data.ids[position]], seed=seed)[0], path, quality)
        except UserError as error:
            if isinstance(error, Unusable) or not _damaged(data, position, geometry):
                raise
            log.warning("%s; it is left out", error)
            return Copy(0, len(threats) - len(missing), 1)
        return Copy(len(missing), len(threats) - len(missing), 0)

    from rich.console import Console
    from rich.progress import track

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        made = pool.map(one, positions)
        shown = track(made, "images", len(positions), console=Console(stderr=True), disable=quiet)
        parts = list(shown)
    return Copy(*(sum(getattr(part, name) for part in parts) for name in ("written", "found", "failed")))


def corruptions_of(texts: Sequence[str]) -> list[ThreatModel]:
    """Return the corruptions that texts and boards name, each once; other threats of a board are left out.

    Args:
        texts: Such as ``fog:3``, ``fog`` for all severities, or ``imagenet-c``.

    Raises:
        UserError: If a text names no corruption and no board.
    """
    boards = registry.entries("leaderboards")
    threats: list[ThreatModel] = []
    for text in texts:
        parts = find_board(text).threats if text in boards else spread(text)
        found = [ThreatModel.parse(part) for part in parts]
        if (text not in boards and found[0].severity is None) or not any(one.severity for one in found):
            raise BadValue(f"threat {text!r} is no corruption; write such as 'fog:3', 'fog' or 'imagenet-c'")
        threats += [one for one in found if one.severity is not None]
    return list(dict.fromkeys(threats))


def write_preview(
    source: str | Path,
    path: str | Path,
    threats: Sequence[ThreatModel],
    *,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    limit: int | None = None,
) -> None:
    """Draw the first image that a copy would hold under every corruption, on one sheet.

    Args:
        source: What `robustkpca.data.open_data` opens.
        path: The sheet, such as ``sheet.png``.
        threats: Corruptions at a severity.
        preprocessing: As for `write_copy`.
        seed: Key of the random streams.
        limit: As for `write_copy`.
    """
    data = open_data(source)
    first = selection(data.ids, limit)[0]
    image = _pixels(data, first, preprocessing or Preprocessing())[0]
    save_sheet(contact_sheet(image, threats, sample=data.ids[first], seed=seed), path)


def _place(threat: ThreatModel) -> str:
    return f"{threat.written}/{threat.severity}"


def _names(data: Dataset, suffix: str) -> list[str]:
    """Return a path ``<class>/<image>.<suffix>`` for each position; whole file names where stems occur twice."""
    classes = [data.class_names[label] for label in data.labels]
    stems = [f"{name}/{PurePosixPath(one).stem}.{suffix}" for name, one in zip(classes, data.ids, strict=True)]
    if len(set(stems)) == len(stems):
        return stems
    flat = [f"{name}/{one.replace('/', '_')}.{suffix}" for name, one in zip(classes, data.ids, strict=True)]
    if len(set(flat)) < len(flat):
        raise BadValue(f"data {data.spec.name!r}: two images would get one name; rename one of them")
    return flat


def _pixels(data: Dataset, position: int, geometry: Preprocessing) -> Tensor:
    """Return one image ``(1, 3, H, W)``, uint8."""
    if isinstance(data, ImageFiles):
        return decoded(data.root / data.ids[position], geometry)[None]
    image: Tensor = data.read([position], geometry)
    return (image * 255).round().to(torch.uint8)


def _damaged(data: Dataset, position: int, geometry: Preprocessing) -> bool:
    return bool(data.check([position], geometry))


def _write(pixels: Tensor, path: Path, quality: int | None) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    options: dict[str, Any] = (
        {"format": "PNG", "compress_level": 1} if quality is None else {"format": "JPEG", "quality": quality}
    )
    _made(path.parent)
    try:
        Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(temporary, **options)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Unusable(f"target {path} cannot be written: {error}") from error


def _settle(folder: Path, data: Dataset, geometry: Preprocessing, quality: int | None, seed: int) -> None:
    """Write down how the copy is made, or compare with what was written."""
    settings = {
        "source": data.spec.id,
        "preprocessing": str(geometry),
        "format": "png" if quality is None else f"jpeg, quality {quality}",
        "seed": seed,
    }
    path = folder / SETTINGS
    if path.is_file():
        there = json.loads(path.read_text(encoding="utf-8"))
        other = [
            f"{name} {there.get(name)!r}, now {value!r}" for name, value in settings.items() if there.get(name) != value
        ]
        if other:
            raise BadValue(f"target {folder} was made otherwise: {'; '.join(other)}; choose another folder")
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise BadValue(f"target {folder} is not empty and holds no {SETTINGS}; choose another folder")
    _made(folder)
    path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"target {folder} cannot be made: {error.strerror}") from error
