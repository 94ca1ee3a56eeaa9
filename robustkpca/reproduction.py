"""The command that makes a record again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any


def command(header: Mapping[str, Any]) -> str:
    """Return the command line that a shard came from, without its threats.

    A checkpoint is named by the beginning of its sha256, since its file may lie elsewhere by now.

    Args:
        header: `RunHeader.to_dict`.
    """
    model, data = header["model"], header["data"]
    words = ["robustkpca", "score", shlex.quote(model["label"] or model["name"])]
    if model["checkpoint"]:
        words += ["--checkpoint", f"FILE_WITH_SHA256_{model['checkpoint'][:12]}"]
    if header["task"] != "classification":  # every other task has a benchmark of its name
        words += ["--benchmark", shlex.quote(header["task"])]
    if data["path"]:
        words += ["--data", shlex.quote(data["path"])]
    if header["planned"] < data["size"]:
        words += ["--limit", str(header["planned"])]
    if header["seed"]:
        words += ["--seed", str(header["seed"])]
    if header["dtype"] != "float32":
        words += ["--dtype", header["dtype"]]
    return " ".join(words)
