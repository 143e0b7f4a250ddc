"""Makes the list of environment variables in docs/configuration.md from the code, when mkdocs makes the site."""

from __future__ import annotations

from p4reduce_runtime import environment


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with the list in the place of the module's name."""
    return markdown.replace(f"\n::: {environment.__name__}\n", f"\n{environment.as_markdown()}\n")
