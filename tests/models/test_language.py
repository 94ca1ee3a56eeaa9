"""Language models: parity, keys and counts, and nothing that comes later is ever read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from robustkpca.errors import BadValue, Unusable
from robustkpca.models import create_model, load_model
from robustkpca.models.adaptive_softmax import AdaptiveSoftmax
from robustkpca.models.causal_attention import DecoderAttention, causal_attention, causal_pursuit_attention
from robustkpca.models.pursuit import Pursuit

GOLDEN = Path(__file__).parents[1] / "golden" / "attention"
SMALL = "depth=3,embed_dim=16,num_heads=2,hidden_dim=32,cutoffs=[5,20],vocabulary=50"
NAMES = ("softmax_lm", "symlm", "rpc_symlm")


def small(name: str, **options: object) -> nn.Module:
    extra = "".join(f",{key}={value}" for key, value in options.items())
    layers = ",layers=[0,2]" if name == "rpc_symlm" and "layers" not in options else ""
    network = create_model(f"{name}({SMALL}{layers}{extra})").eval()
    torch.manual_seed(0)
    for parameter in network.parameters():  # the published spread is so small that all words are alike
        nn.init.normal_(parameter, 0.0, 0.5)
    return network


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(1))


# The published network


def test_the_published_size_has_the_published_number_of_parameters_and_its_names() -> None:
    network = create_model("symlm")
    assert sum(parameter.numel() for parameter in network.parameters()) == 44_018_394
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    wanted: dict[str, tuple[int, ...]] = {
        "word_emb.emb_layers.0.weight": (267_735, 128),
        "crit.cluster_weight": (3, 128),
        "crit.cluster_bias": (3,),
        "crit.out_layers.0.weight": (267_735, 128),
        "crit.out_layers.0.bias": (267_735,),
        "pos_emb.inv_freq": (64,),
    }
    for layer in range(16):
        part = f"layers.{layer}"
        wanted |= {
            f"{part}.dec_attn.q_net.weight": (128, 128),
            f"{part}.dec_attn.kv_net.weight": (256, 128),
            f"{part}.dec_attn.o_net.weight": (128, 128),
            f"{part}.pos_ff.CoreNet.0.weight": (2048, 128),
            f"{part}.pos_ff.CoreNet.0.bias": (2048,),
            f"{part}.pos_ff.CoreNet.3.weight": (128, 2048),
            f"{part}.pos_ff.CoreNet.3.bias": (128,),
        }
        for norm in ("dec_attn", "pos_ff"):
            wanted |= {f"{part}.{norm}.layer_norm.{name}": (128,) for name in ("weight", "bias")}
    assert shapes == wanted
    assert network.crit.out_layers[0].weight is network.word_emb.emb_layers[0].weight


@pytest.mark.parametrize(("variant", "before"), [("postln", False), ("preln", True)])
def test_a_layer_agrees_with_the_reference(variant: str, before: bool) -> None:
    held = load_file(GOLDEN / "lm_sym.safetensors")
    layer = DecoderAttention(16, 2, before=before)
    layer.load_state_dict({key[11:]: value for key, value in held.items() if key.startswith("attn_param.")})
    hidden = held["h"].transpose(0, 1).clone().requires_grad_(True)
    made = layer(hidden)
    case = f"sym_lm_{variant}_causal"
    torch.testing.assert_close(made.transpose(0, 1), held[f"{case}.out"], atol=1e-5, rtol=0)
    (gradient,) = torch.autograd.grad((made * held["cot"].transpose(0, 1)).sum(), hidden)
    wanted = held[f"{case}.grad_x_cot"]
    assert float((gradient.transpose(0, 1) - wanted).norm() / wanted.norm()) < 1e-4


def test_the_whole_model_agrees_with_the_reference() -> None:
    held, cases = load_file(GOLDEN / "lm_sym.safetensors"), json.loads((GOLDEN / "cases.json").read_text())
    network = create_model("symlm(depth=2,num_heads=2,embed_dim=16,hidden_dim=32,cutoffs=[],vocabulary=50)").eval()
    network.load_state_dict(load_file(GOLDEN / "lm_sym_state_dict.safetensors"))
    with torch.no_grad():
        losses = network(held["lm_input_ids"].T, held["lm_target_ids"].T)
    torch.testing.assert_close(losses.T, held["lm_token_nll"], atol=1e-5, rtol=0)
    assert math.exp(float(losses.mean())) == pytest.approx(cases["lm_sym"]["lm"]["ppl"], rel=1e-5)


def test_a_whole_pickled_module_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    torch.save(create_model(f"symlm({SMALL})"), tmp_path / "model.pt")
    with pytest.raises(Unusable, match=r"whole pickled module.*state_dict"):
        load_model(f"symlm({SMALL})", tmp_path / "model.pt")


def test_a_state_dict_is_loaded_strictly(tmp_path: Path) -> None:
    torch.save(create_model(f"symlm({SMALL})").state_dict(), tmp_path / "model.pt")
    assert load_model(f"symlm({SMALL})", tmp_path / "model.pt").spec.checkpoint
    with pytest.raises(Unusable):
        load_model(f"symlm({SMALL.replace('depth=3', 'depth=2')})", tmp_path / "model.pt")


# The criterion


def test_the_probabilities_of_all_words_sum_to_one_and_the_last_entry_is_the_first_cluster() -> None:
    torch.manual_seed(2)
    criterion = AdaptiveSoftmax(nn.Parameter(torch.randn(50, 8)), (5, 20, 33)).double().requires_grad_(False)
    nn.init.normal_(criterion.cluster_weight)
    nn.init.normal_(criterion.cluster_bias)
    hidden = torch.randn(1, 8, dtype=torch.float64)
    losses = criterion(hidden.expand(50, 8), torch.arange(50)).detach()
    assert float((-losses).exp().sum()) == pytest.approx(1.0, abs=1e-12)
    weight, bias = criterion.out_layers[0].weight, criterion.out_layers[0].bias
    head = torch.cat([weight[:5] @ hidden[0] + bias[:5], criterion.cluster_weight @ hidden[0] + criterion.cluster_bias])
    inside = (weight[5:20] @ hidden[0] + bias[5:20]).log_softmax(0)
    assert float(losses[7]) == pytest.approx(float(-(head.log_softmax(0)[-1] + inside[2])), abs=1e-12)


# Causality


@pytest.mark.parametrize("name", NAMES)
def test_no_later_token_changes_an_earlier_probability(name: str) -> None:
    network, text = small(name).double(), tokens(1, 13)
    with torch.no_grad():
        before = network(text[:, :-1], text[:, 1:])
        for place in range(1, 13):
            other = text.clone()
            other[0, place] = (other[0, place] + 7) % 50
            after = network(other[:, :-1], other[:, 1:])
            torch.testing.assert_close(after[:, : place - 1], before[:, : place - 1], atol=1e-12, rtol=0)
            assert not torch.equal(after[:, place - 1 :], before[:, place - 1 :])


def test_a_penalty_of_the_whole_window_reads_what_is_to_come() -> None:
    network, text = small("rpc_symlm", norm="window", lambda_=0.5).double(), tokens(1, 13)
    other = text.clone()
    other[0, 11] = (other[0, 11] + 7) % 50
    with torch.no_grad():
        early = [network(one[:, :-1], one[:, 1:])[:, :5] for one in (text, other)]
    assert float((early[0] - early[1]).abs().max()) > 1e-9


@pytest.mark.parametrize("norm", ["causal", "window"])
def test_one_pass_with_a_large_threshold_is_the_symmetric_model(norm: str) -> None:
    text = tokens(2, 13)
    with torch.no_grad():
        plain = small("symlm")(text[:, :-1], text[:, 1:])
        pursued = small("rpc_symlm", iterations=1, lambda_="1e6", layers="all", norm=norm)(text[:, :-1], text[:, 1:])
        deep = small("rpc_symlm", iterations=4, lambda_="1e6", layers="all", norm=norm)(text[:, :-1], text[:, 1:])
    torch.testing.assert_close(pursued, plain, atol=1e-5, rtol=1e-5)
    assert float((deep - plain).abs().max()) > 1e-2


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_a_causal_pursuit_of_a_prefix_is_the_prefix_of_the_pursuit(iterations: int) -> None:
    torch.manual_seed(3)
    keys, values = torch.randn(2, 3, 11, 4).double(), torch.randn(2, 3, 11, 4).double()
    pursuit = Pursuit(iterations, 0.3)
    whole = causal_pursuit_attention(keys, values, pursuit)
    for length in (1, 4, 10):
        part = causal_pursuit_attention(keys[..., :length, :], values[..., :length, :], pursuit)
        torch.testing.assert_close(part, whole[..., :length, :])
    torch.testing.assert_close(causal_pursuit_attention(keys, values, pursuit, last=2), whole[..., -2:, :])


def test_two_passes_are_those_written_out_by_hand() -> None:
    torch.manual_seed(4)
    keys, values = torch.randn(1, 1, 3, 2).double(), torch.randn(1, 1, 3, 2).double()
    level = torch.stack([0.5 * (t + 1) * 2 / 4 / keys[0, 0, : t + 1].abs().sum() for t in range(3)])[:, None]

    def attend(cleaned: Tensor) -> Tensor:
        rows = []
        for t in range(3):
            weights = (cleaned[: t + 1] @ cleaned[t] / math.sqrt(2)).softmax(0)
            rows.append(weights @ values[0, 0, : t + 1])
        return torch.stack(rows)

    k = keys[0, 0]
    sparse = k.sign() * (k.abs() - level).clamp_min(0)
    low = attend(k - sparse)
    dual = k - low - sparse
    left = k - low + dual
    sparse = left.sign() * (left.abs() - level).clamp_min(0)
    wanted = attend(k - sparse - dual)
    made = causal_pursuit_attention(keys, values, Pursuit(2, 0.5))
    torch.testing.assert_close(made[0, 0], wanted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("last", [1, 3, 12])
def test_the_last_places_alone_are_those_of_all(name: str, last: int) -> None:
    network, text = small(name), tokens(2, 13)
    with torch.no_grad():
        whole = network(text[:, :-1], text[:, 1:])
        torch.testing.assert_close(network(text[:, :-1], text[:, 1:], last), whole[:, -last:], atol=1e-5, rtol=1e-5)


def test_softmax_attention_asks_with_queries_of_its_own() -> None:
    torch.manual_seed(5)
    queries, keys, values = (torch.randn(1, 1, 4, 2) for _ in range(3))
    weights = (queries @ keys.transpose(-2, -1) / math.sqrt(2)).masked_fill(~torch.ones(4, 4).tril().bool(), -torch.inf)
    torch.testing.assert_close(causal_attention(queries, keys, values), weights.softmax(-1) @ values)


# Options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("symlm(vocabulary=0)", "vocabulary is 0"),
        ("symlm(vocabulary=nowhere.txt)", "No such file"),
        ("symlm(vocabulary=10)", "cutoffs are"),
        ("symlm(embed_dim=10,num_heads=4)", "embed_dim is 10"),
        ("rpc_symlm(layers=16)", "layers is 16"),
        ("rpc_symlm(norm=future)", "norm is 'future'"),
        ("rpc_symlm(iterations=0)", "iterations is 0"),
        ("symlm(dropout=1.0)", "dropout is 1.0"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(text: str, said: str) -> None:
    with pytest.raises(BadValue, match=said) as caught:
        create_model(text)
    assert "\n" not in str(caught.value)


def test_another_list_of_words_is_another_model(tmp_path: Path) -> None:
    ids = []
    for words in ("<eos>\n<unk>\nred\n", "<eos>\n<unk>\nblue\n"):
        (tmp_path / "words.txt").write_text(words)
        from robustkpca.models import language

        language._vocabulary.cache_clear()
        options = f"depth=1,embed_dim=4,num_heads=1,hidden_dim=4,cutoffs=[],vocabulary={tmp_path / 'words.txt'}"
        ids.append(load_model(f"symlm({options})").spec.id)
    assert ids[0] != ids[1]


@pytest.mark.parametrize("name", ["softmax_lm_novel", "symlm_novel", "rpc_symlm_novel"])
def test_bundled_weights_are_those_on_record(name: str) -> None:
    import robustkpca

    record = json.loads((Path(robustkpca.__file__).parent / "models" / "bundled" / "novel.json").read_text())
    assert load_model(name).spec.weights == record["models"][name]["weights"]
