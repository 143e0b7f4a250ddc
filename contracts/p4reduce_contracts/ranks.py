"""How messages name ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def name_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 3", "ranks 3, 5" or "ranks 0 to 7, 9": three in a row and more as a span. `ranks` is in order."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    texts: list[str] = []
    for first, last in spans:
        texts += [f"{first} to {last}"] if last - first > 1 else map(str, range(first, last + 1))
    alone = len(spans) == 1 and spans[0][0] == spans[0][1]
    return f"rank{'' if alone else 's'} {', '.join(texts)}"


def name_children(children: Iterable[Sequence[int]]) -> str:
    """Return how messages name children of a switch, each given by the ranks behind it.

    Such as "ranks 3, 5" or "rank 3, the switch of ranks 32 to 63".
    """
    children = list(children)
    alone = sorted(ranks[0] for ranks in children if len(ranks) == 1)
    switches = [f"the switch of {name_ranks(sorted(ranks))}" for ranks in children if len(ranks) > 1]
    return ", ".join(([name_ranks(alone)] if alone else []) + switches)
