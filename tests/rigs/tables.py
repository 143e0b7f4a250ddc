"""Tables that a command printed."""

from __future__ import annotations


def rows(text: str, beginning: str) -> list[list[str]]:
    """The cells of the rows whose first cell is this."""
    found = [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in text.splitlines()]
    return [cells for cells in found if cells[0] == beginning]
