"""Settings from files, checked: an error names the file, the place and what would be right."""

from __future__ import annotations


class ConfigError(Exception):
    """The configuration cannot be used; the message names the key."""
