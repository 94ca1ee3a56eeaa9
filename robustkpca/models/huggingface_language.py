"""Causal language models of Hugging Face's transformers, where transformers is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from robustkpca.errors import Unusable
from robustkpca.specs import fingerprint


class Tokenizer:
    """Encodes a line and the line end behind it, without special tokens; each line by itself.

    Args:
        tokenizer: Of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, line: str) -> list[int]:
        """Return the tokens of a line."""
        return [int(token) for token in self._tokenizer(f"{line}\n", add_special_tokens=False)["input_ids"]]


class CausalModel(nn.Module):
    """A causal model that gives losses in place of logits.

    Args:
        network: Of transformers.
        tokenizer: Of the same model.

    Attributes:
        vocabulary: Its tokenizer.
    """

    def __init__(self, network: nn.Module, tokenizer: Any) -> None:
        super().__init__()
        self.network, self.vocabulary = network, Tokenizer(tokenizer)
        words = bytearray.fromhex(fingerprint(sorted(tokenizer.get_vocab().items())))
        self.register_buffer("vocabulary_digest", torch.frombuffer(words, dtype=torch.uint8), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """Return losses in nats ``(B, last)`` of the last targets; tokens and targets ``(B, N)``, int64."""
        wanted = targets if last is None else targets[:, -last:]
        logits = self.network(input_ids=tokens, use_cache=False).logits[:, -wanted.shape[1] :]
        return cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), reduction="none").view(wanted.shape)


def create(name: str) -> CausalModel:
    """Load a causal model with its weights and its tokenizer.

    Args:
        name: A folder saved by ``save_pretrained``, with safetensors weights and a tokenizer, or a name on the Hub. Code that
            comes with a model is never run.

    Raises:
        Unusable: If transformers is not installed, or the model cannot be had.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise Unusable("huggingface/ models need transformers: pip install transformers") from None
    source = str(Path(name)) if Path(name).is_dir() else name
    try:
        network = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=False, use_safetensors=True)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # hub, HTTP library and transformers each raise their own
        reason = " ".join(str(error).split())[:200]
        raise Unusable(
            f"huggingface/{name}: cannot be had ({reason}); give a folder saved by save_pretrained, with safetensors "
            "and a tokenizer"
        ) from error
    return CausalModel(network, tokenizer)
