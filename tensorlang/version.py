"""The version of the package, which records and cached files carry."""

from typing import Final

__version__: Final = "0.1.0"
