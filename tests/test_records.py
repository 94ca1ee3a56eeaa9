"""What is written down."""

from __future__ import annotations

import json

from robustkpca.records import RunHeader, Verdict


def test_the_words_of_the_verdicts_are_those_in_old_files() -> None:
    assert [verdict.value for verdict in Verdict] == ["mistaken", "survived", "broken", "measured", "invalid", "failed"]


def test_a_header_is_plain_json() -> None:
    header = RunHeader(
        model={"id": "m"},
        threat="clean",
        threat_version=1,
        data={"id": "d"},
        task="classification",
        seed=0,
        device="cpu",
        dtype="float32",
        batch_size=8,
        seconds=0.5,
        started="2026-01-01T00:00:00+00:00",
        versions={"torch": "2"},
        code="/somewhere",
        planned=3,
        threat_label="clean",
        flags=("random output",),
    )
    back = json.loads(json.dumps(header.to_dict()))
    assert back["flags"] == ["random output"]
    assert back["schema"] == RunHeader.SCHEMA
