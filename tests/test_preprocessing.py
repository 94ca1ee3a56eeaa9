"""What happens to a picture before the network, as a value with one text."""

from __future__ import annotations

import numpy
import pytest
import torch
from PIL import Image

from robustkpca.errors import BadValue
from robustkpca.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

FULL = Preprocessing(256, 224, "bilinear", IMAGENET_MEAN, IMAGENET_STD)


def picture(height: int, width: int) -> Image.Image:
    """Return a picture whose pixels are all different from their neighbours."""
    values = numpy.arange(height * width * 3, dtype=numpy.uint32).reshape(height, width, 3) % 251
    return Image.fromarray(values.astype(numpy.uint8))


def test_the_text_names_everything_that_moves_a_number() -> None:
    assert str(FULL) == (
        "preprocessing(channels=3,crop=224,interpolation=bilinear,mean=[0.485,0.456,0.406],resize=256,"
        "std=[0.229,0.224,0.225])"
    )


@pytest.mark.parametrize(
    "value", [Preprocessing(), FULL, Preprocessing(crop=8), Preprocessing(channels=1, mean=(0.5,), std=(0.25,))]
)
def test_a_preprocessing_that_is_written_is_read_back_the_same(value: Preprocessing) -> None:
    assert Preprocessing.parse(str(value)) == value


def test_the_name_may_be_left_out() -> None:
    assert Preprocessing.parse("crop=224, resize=256") == Preprocessing(256, 224)


def test_one_number_stands_for_a_list_of_one() -> None:
    assert Preprocessing.parse("channels=1,mean=0.5,std=0.5") == Preprocessing(channels=1, mean=(0.5,), std=(0.5,))


def test_an_interpolation_that_is_not_used_is_not_in_the_text() -> None:
    assert str(Preprocessing(interpolation="nearest")) == str(Preprocessing())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("interpolation=cubic", "expected one of nearest, bilinear, bicubic, lanczos"),
        ("resize=0", "resize is 0; expected a number of pixels"),
        ("crop=2.5", "crop is 2.5; expected a number of pixels"),
        ("channels=4", "channels is 4; expected 1 or 3"),
        ("mean=[0.5],std=[0.5]", "mean is .*; expected 3 numbers"),
        ("mean=[0.5,0.5,0.5]", "must come together"),
        ("mean=[0,0,0],std=[1,0,1]", "std must be positive"),
        ("mean=[0,0,nan],std=[1,1,1]", "expected finite numbers"),
        ("mean=[0,0,0],std=[1,inf,1]", "expected finite numbers"),
        ("mean=[a,b,c],std=[1,1,1]", "mean is .*; expected numbers"),
        ("size=3", "names among channels, crop"),
        ("transform(size=3)", "names among channels, crop"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(BadValue, match=complaint) as caught:
        Preprocessing.parse(text)
    assert "\n" not in str(caught.value)


def test_nothing_asked_for_leaves_every_byte_alone() -> None:
    image = picture(5, 7)
    found = Preprocessing().apply(image)
    assert torch.equal(found, torch.from_numpy(numpy.array(image)).permute(2, 0, 1))


def test_the_crop_is_central() -> None:
    found = Preprocessing(crop=3).apply(picture(5, 7))
    assert torch.equal(found, torch.from_numpy(numpy.array(picture(5, 7)))[1:4, 2:5].permute(2, 0, 1))


def test_the_shorter_side_gets_the_length_asked_for() -> None:
    assert Preprocessing(resize=10).apply(picture(5, 8)).shape == (3, 10, 16)


@pytest.mark.parametrize(
    ("name", "filter_"),
    [
        ("nearest", Image.Resampling.NEAREST),
        ("bilinear", Image.Resampling.BILINEAR),
        ("bicubic", Image.Resampling.BICUBIC),
        ("lanczos", Image.Resampling.LANCZOS),
    ],
)
def test_resizing_is_that_of_pillow(name: str, filter_: Image.Resampling) -> None:
    image = picture(12, 12)
    expected = torch.from_numpy(numpy.array(image.resize((8, 8), filter_))).permute(2, 0, 1)
    assert torch.equal(Preprocessing(resize=8, interpolation=name).apply(image), expected)


def test_one_channel_makes_grey() -> None:
    found = Preprocessing(channels=1).apply(picture(4, 4))
    assert torch.equal(found[0], torch.from_numpy(numpy.array(picture(4, 4).convert("L"))))


def test_a_grey_picture_becomes_three_equal_channels() -> None:
    found = Preprocessing().apply(picture(4, 4).convert("L"))
    assert torch.equal(found[0], found[2])


def test_a_picture_smaller_than_the_crop_is_refused() -> None:
    with pytest.raises(BadValue, match="image is 7x5, smaller than the crop of 6 pixels"):
        Preprocessing(crop=6).apply(picture(5, 7))


def test_a_mean_of_hundreds_of_digits_is_one_line() -> None:
    with pytest.raises(BadValue, match="at most 300 digits"):
        Preprocessing.parse(f"mean=[{'9' * 400},0,0],std=[1,1,1]")
