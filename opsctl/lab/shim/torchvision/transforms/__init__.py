"""``torchvision.transforms``: see the package. transformers builds a table of these modes."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from enum import Enum

from torchvision import names_of


class InterpolationMode(Enum):
    """The modes by the names and values of torchvision."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


__getattr__ = names_of(__name__)
