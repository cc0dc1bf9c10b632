"""``torchvision.transforms.v2.functional``: see the package."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from torchvision import names_of

__getattr__ = names_of(__name__)
