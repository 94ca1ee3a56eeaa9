"""One picture under many corruptions, on one sheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from robustkpca.corrupting import corrupted
from robustkpca.errors import Unusable
from robustkpca.threats import ThreatModel

MARGIN, LINE = 8, 18


def contact_sheet(image: Tensor, threats: Sequence[ThreatModel], *, sample: str, seed: int = 0) -> Image.Image:
    """Draw a picture and what corruptions make of it: one row each, the severities from left to right.

    Args:
        image: ``(3, H, W)``, uint8.
        threats: Corruptions at a severity.
        sample: Id of the picture, a part of the key of its random numbers.
        seed: The other part.
    """
    rows: dict[str, list[ThreatModel]] = {}
    for threat in threats:
        rows.setdefault(str(threat.written), []).append(threat)
    height, width = image.shape[1:]
    across = 1 + max(len(row) for row in rows.values())
    sheet = Image.new(
        "RGB", (MARGIN + across * (width + MARGIN), MARGIN + len(rows) * (height + LINE + MARGIN)), "white"
    )
    write, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for place, (name, row) in enumerate(rows.items()):
        top = MARGIN + place * (height + LINE + MARGIN)
        cells = [("clean", image), *((f"{name}:{t.severity}", _one(image, t, sample, seed)) for t in row)]
        for column, (label, pixels) in enumerate(cells):
            left = MARGIN + column * (width + MARGIN)
            write.text((left, top), label, fill="black", font=font)
            sheet.paste(Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()), (left, top + LINE))
    return sheet


def save_sheet(sheet: Image.Image, path: str | Path) -> None:
    """Write a sheet; the suffix of the path says in which format.

    Args:
        sheet: From `contact_sheet`.
        path: Such as ``sheet.png``.

    Raises:
        Unusable: If it cannot be written, or there is no such format.
    """
    try:
        sheet.save(path)
    except (OSError, ValueError) as error:
        raise Unusable(f"sheet {str(path)!r} cannot be written: {error}; expected a path such as sheet.png") from error


def _one(image: Tensor, threat: ThreatModel, sample: str, seed: int) -> Tensor:
    return corrupted(image[None], threat, [sample], seed=seed)[0]
