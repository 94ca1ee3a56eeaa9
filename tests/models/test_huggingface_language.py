"""Causal models of transformers, where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robustkpca.errors import BadValue, Unusable
from robustkpca.installed import installed
from robustkpca.models.huggingface_models import create


def test_another_task_is_refused() -> None:
    with pytest.raises(BadValue, match="expected images or language"):
        create("nowhere", task="sound")


def test_without_transformers_the_mend_is_told() -> None:
    if installed("transformers"):
        pytest.skip("transformers is installed")
    with pytest.raises(Unusable, match="pip install transformers"):
        create("nowhere", task="language")


@pytest.mark.filterwarnings("default")
def test_a_causal_model_is_scored_as_it_scores_itself(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    import robustkpca as rk
    from robustkpca.data.text import open_text

    bare = tokenizers.Tokenizer(tokenizers.models.BPE())
    bare.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    bare.train_from_iterator(open_text("novel/validation").lines, trainer)
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=bare)
    config = transformers.GPT2Config(vocab_size=len(words), n_positions=32, n_embd=16, n_layer=2, n_head=2)
    network = transformers.GPT2LMHeadModel(config).eval()
    network.save_pretrained(tmp_path, safe_serialization=True)
    words.save_pretrained(tmp_path)
    data = "novel/validation:context=32,stride=32"
    frame = rk.score(f"huggingface/{tmp_path}(task=language)", "clean", data, benchmark="language", limit=3)
    text = [token for line in open_text(data).lines for token in words(f"{line}\n")["input_ids"]]
    whole = torch.tensor(text)
    with torch.no_grad():
        window = whole[None, :33]
        own = network(input_ids=window[:, :-1], labels=window[:, :-1]).logits[0].log_softmax(-1)
    model = create(str(tmp_path), task="language").eval()
    with torch.no_grad():
        losses = model(window[:, :-1], window[:, 1:])[0]
    torch.testing.assert_close(losses, -own[torch.arange(32), window[0, 1:]], atol=1e-5, rtol=1e-5)
    assert (frame["verdict"] == "measured").all()
