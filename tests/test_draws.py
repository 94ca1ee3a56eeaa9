"""One stream per sample: the generator against its published answers, the streams against statistics."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from robustkpca import draws as module
from robustkpca.draws import Draws, philox

LIKE = torch.zeros(())
LIKE64 = torch.zeros((), dtype=torch.float64)
word = st.integers(0, 2**32 - 1)


def python_philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 in plain integers, written from section 3.3 of the paper."""
    c, k = list(counter), list(key)
    for round_ in range(10):
        if round_:
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second % 2**32, (first >> 32) ^ c[3] ^ k[1], first % 2**32]
    return c


def ours(counter: list[int], key: list[int]) -> list[int]:
    """Run one block of the library."""
    return [int(out) for out in philox([torch.tensor(c) for c in counter], [torch.tensor(k) for k in key])]


def streams(count: int = 3, *, seed: int = 0, threat: str = "pgd@linf:8/255", restart: int = 0) -> Draws:
    """Open the streams of the samples 0, 1, 2, ..."""
    return Draws.of([str(index) for index in range(count)], seed=seed, threat=threat, restart=restart)


def many(kind: str) -> numpy.ndarray:
    """Return 20000 numbers, from 20 samples, 2 calls."""
    source = streams(20)
    parts = [getattr(source, kind)((500,), LIKE64) for _ in range(2)]
    return torch.cat(parts, dim=1).flatten().numpy()


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
def test_philox_gives_the_known_answers_of_random123(counter: str, key: str, expected: str) -> None:
    numbers = [[int(hexadecimal, 16) for hexadecimal in text.split()] for text in (counter, key, expected)]
    assert ours(numbers[0], numbers[1]) == numbers[2]


@given(st.lists(word, min_size=4, max_size=4), st.lists(word, min_size=2, max_size=2))
def test_philox_agrees_with_plain_integers(counter: list[int], key: list[int]) -> None:
    assert ours(counter, key) == python_philox(counter, key)


def test_words_come_from_the_counter_of_position_and_call() -> None:
    source = streams(2)
    source.uniform((3,), LIKE64)
    found = source.uniform((6,), LIKE64)[1]
    key = source.keys[1].tolist()
    words = python_philox([0, 1, 0, 0], key) + python_philox([1, 1, 0, 0], key)
    assert found.tolist() == [(value >> 8) / 2**24 for value in words[:6]]


def test_uniform_numbers_are_uniform() -> None:
    assert kstest(many("uniform"), "uniform").pvalue > 1e-3


def test_normal_numbers_are_normal() -> None:
    assert kstest(many("normal"), "norm").pvalue > 1e-3


def test_signs_are_fair() -> None:
    assert chisquare(numpy.unique(many("signs"), return_counts=True)[1]).pvalue > 1e-3


def test_signs_are_minus_one_and_one() -> None:
    assert set(many("signs")) == {-1.0, 1.0}


def test_integers_are_uniform_below_their_bound() -> None:
    values, counts = torch.unique(streams(20).integers(7, (1000,), LIKE), return_counts=True)
    assert values.tolist() == list(range(7))
    assert chisquare(counts.numpy()).pvalue > 1e-3


def test_integers_take_a_bound_for_every_entry() -> None:
    high = torch.tensor([1, 2, 2**31])
    found = streams(50).integers(high, (3,), LIKE)
    assert found.dtype == torch.int64
    assert found[:, 0].eq(0).all()
    assert found[:, 1].unique().tolist() == [0, 1]
    assert found[:, 2].max() > 2**30


def test_samples_are_uncorrelated() -> None:
    numbers = streams(2).normal((20000,), LIKE64)
    assert abs(float(torch.corrcoef(numbers)[0, 1])) < 0.03


def test_calls_are_uncorrelated() -> None:
    source = streams(1)
    numbers = torch.cat([source.normal((20000,), LIKE64), source.normal((20000,), LIKE64)])
    assert abs(float(torch.corrcoef(numbers)[0, 1])) < 0.03


@pytest.mark.parametrize("kind", ["uniform", "normal", "signs"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4, 4), (0,), (33,)])
def test_the_shape_is_the_one_asked_for(kind: str, shape: tuple[int, ...]) -> None:
    assert getattr(streams(), kind)(shape, LIKE).shape == (3, *shape)


@pytest.mark.parametrize("kind", ["uniform", "normal", "signs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_that_of_the_example(kind: str, dtype: torch.dtype) -> None:
    assert getattr(streams(), kind)((2,), torch.zeros((), dtype=dtype)).dtype == dtype


def test_float32_and_float64_receive_the_same_uniform_numbers() -> None:
    assert torch.equal(streams().uniform((99,), LIKE).double(), streams().uniform((99,), LIKE64))


def test_no_samples_give_no_numbers() -> None:
    assert streams(0).normal((3, 2), LIKE).shape == (0, 3, 2)


@pytest.mark.parametrize("kind", ["uniform", "normal", "signs"])
def test_a_sample_does_not_notice_its_batch(kind: str) -> None:
    together = getattr(streams(5), kind)((3, 4), LIKE)
    alone = getattr(Draws.of(["3"], seed=0, threat="pgd@linf:8/255"), kind)((3, 4), LIKE)
    assert torch.equal(together[3:4], alone)


def test_order_does_not_matter() -> None:
    backwards = Draws.of(["2", "1", "0"], seed=0, threat="pgd@linf:8/255")
    assert torch.equal(streams().uniform((4,), LIKE), backwards.uniform((4,), LIKE).flip(0))


def test_a_narrowed_stream_goes_on_where_it_was() -> None:
    whole, index = streams(5), torch.tensor([4, 0])
    whole.uniform((4,), LIKE)
    narrowed = whole.narrow(index)
    assert torch.equal(whole.uniform((4,), LIKE)[index], narrowed.uniform((4,), LIKE))


def test_the_same_key_gives_the_same_numbers() -> None:
    assert torch.equal(streams().normal((9,), LIKE), streams().normal((9,), LIKE))


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"threat": "pgd@linf:4/255"}, {"restart": 1}], ids=["seed", "threat", "restart"]
)
def test_another_key_gives_other_numbers(other: dict[str, object]) -> None:
    changed = streams(**other)  # type: ignore[arg-type]
    assert not torch.isclose(streams().uniform((9,), LIKE), changed.uniform((9,), LIKE)).any()


def test_two_samples_get_different_numbers() -> None:
    numbers = streams().uniform((9,), LIKE)
    assert len(numbers.flatten().unique()) == 27


def test_keys_of_neighbouring_fields_cannot_be_confused() -> None:
    """A seed 1 with threat 2x must not be a seed 12 with threat x."""
    first = Draws.of(["a"], seed=1, threat="2x")
    second = Draws.of(["a"], seed=12, threat="x")
    assert not torch.equal(first.keys, second.keys)


def test_a_repeated_call_gives_new_numbers() -> None:
    source = streams()
    assert not torch.isclose(source.uniform((9,), LIKE), source.uniform((9,), LIKE)).any()


@pytest.mark.parametrize("kind", ["uniform", "normal", "signs"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_size_of_the_internal_chunks_does_not_show(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (3, 20, 21)
    whole = getattr(streams(count), kind)(shape, LIKE)
    monkeypatch.setattr(module, "_BLOCKS_AT_ONCE", 100)
    assert torch.equal(getattr(streams(count), kind)(shape, LIKE), whole)


def test_a_shorter_draw_is_the_beginning_of_a_longer_one() -> None:
    assert torch.equal(streams(1).uniform((300_000,), LIKE)[:, :5], streams(1).uniform((5,), LIKE))


def test_the_global_generators_are_untouched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), numpy.random.get_state()[1]
    source = streams()
    source.normal((9,), LIKE)
    source.integers(5, (9,), LIKE)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert numpy.array_equal(numpy.random.get_state()[1], before[1])


def test_the_global_generators_are_not_listened_to() -> None:
    torch.manual_seed(1)
    first = streams().normal((9,), LIKE)
    torch.manual_seed(2)
    assert torch.equal(streams().normal((9,), LIKE), first)


def test_uniform_numbers_stay_below_one_and_normal_numbers_are_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    for extreme in (0, 2**32 - 1):
        monkeypatch.setattr(
            Draws, "_words", lambda self, shape, like, value=extreme: torch.full((len(self), *shape), value)
        )
        source = streams()
        assert 0 <= source.uniform((3,), LIKE).max() < 1
        assert source.normal((3,), LIKE).isfinite().all()
        assert source.integers(7, (3,), LIKE).max() < 7
