"""Passes that do not fit into memory."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas
import pytest

import robustkpca as rk
from robustkpca.errors import Unusable
from robustkpca.store import ResultStore

NET = """
import torch

class Net(torch.nn.Module):
    preprocessing = "preprocessing(channels=1)"

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        torch.manual_seed(0)
        torch.nn.init.normal_(self.layer.weight)

    def forward(self, x):
        if len(x) > ROOM:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.layer(x.flatten(1))

def build():
    return Net()
"""
THREATS = ["clean", "pgd(steps=3)@linf:0.05"]


def scored(folder: Path, room: int, batch_size: int) -> pandas.DataFrame:
    folder.mkdir()
    (folder / "net.py").write_text(NET.replace("ROOM", str(room)))
    frame = rk.score(f"{folder / 'net.py'}:build", THREATS, limit=70, batch_size=batch_size, out=folder / "out")
    return frame.drop(columns=["seconds", "command", "model", "model_name"])


def test_passes_are_halved_until_they_fit_and_nothing_else_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tight = scored(tmp_path / "tight", 20, 64)
    assert [
        record.getMessage().partition(": ")[2] for record in caplog.records if "too little" in record.getMessage()
    ] == [
        "too little memory for passes of 64 images; going on with 32, which changes no verdict",
        "too little memory for passes of 32 images; going on with 16, which changes no verdict",
    ]
    assert {header["batch_size"] for header in ResultStore(tmp_path / "tight" / "out").headers()} == {16}
    pandas.testing.assert_frame_equal(tight, scored(tmp_path / "roomy", 10**9, 64))


def test_the_smallest_pass_that_does_not_fit_ends_the_run_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET.replace("len(x) > ROOM", "x.requires_grad"))
    with pytest.raises(Unusable, match="too little memory for passes of 8 images, the fewest there are"):
        rk.score(f"{tmp_path / 'net.py'}:build", THREATS, limit=9, out=tmp_path / "out")
    assert (ResultStore(tmp_path / "out").frame()["threat_label"] == "clean").all()
