"""The compressors that come with the package, one file each. Importing this package imports, and so registers, all."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
