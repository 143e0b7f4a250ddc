"""From a graph of nodes to nested if statements.

Parsers, controls and actions all come as graphs: nodes with successors. A node that branches is
written as an if statement up to the point where its branches meet again (its immediate
post-dominator), and what follows is written once, behind it. None stands for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from .errors import UnsupportedConstruct

Node = TypeVar("Node", bound=Hashable)


def order(entry: Node, successors: Mapping[Node, Sequence[Node | None]], what: str) -> list[Node]:
    """Nodes reachable from `entry`, each after all of its successors; refuses loops."""
    done: list[Node] = []
    state: dict[Node, bool] = {}
    stack: list[tuple[Node, int]] = [(entry, 0)]
    while stack:
        node, index = stack.pop()
        state[node] = False
        following = [s for s in successors[node] if s is not None]
        while index < len(following) and state.get(following[index], False):
            index += 1
        if index == len(following):
            state[node] = True
            done.append(node)
        elif following[index] in state:
            raise UnsupportedConstruct(f"a loop in {what} through {following[index]}")
        else:
            stack += [(node, index), (following[index], 0)]
    return done


def loop_heads(entry: Node, successors: Mapping[Node, Sequence[Node | None]]) -> set[Node]:
    """Nodes that a depth-first walk from `entry` finds again on its own path."""
    heads: set[Node] = set()
    state: dict[Node, bool] = {}
    stack: list[tuple[Node, int]] = [(entry, 0)]
    while stack:
        node, index = stack.pop()
        state[node] = False
        following = [s for s in successors[node] if s is not None]
        if index == len(following):
            state[node] = True
            continue
        stack.append((node, index + 1))
        if following[index] not in state:
            stack.append((following[index], 0))
        elif not state[following[index]]:
            heads.add(following[index])
    return heads


def joins(
    entry: Node, successors: Mapping[Node, Sequence[Node | None]], what: str
) -> dict[Node, Node | None]:
    """Immediate post-dominator of each node reachable from `entry`."""
    join: dict[Node, Node | None] = {}
    depth: dict[Node | None, int] = {None: 0}

    def meet(a: Node | None, b: Node | None) -> Node | None:
        while a != b:
            if a is not None and depth[a] >= depth[b]:
                a = join[a]
            else:
                assert b is not None
                b = join[b]
        return a

    for node in order(entry, successors, what):
        following = list(successors[node]) or [None]
        target = following[0]
        for other in following[1:]:
            target = meet(target, other)
        join[node] = target
        depth[node] = depth[target] + 1
    return join


def write_paths(
    entry: Node,
    successors: Mapping[Node, Sequence[Node | None]],
    write: Callable[[Node, Callable[[Node | None], None], Node | None], None],
    what: str,
) -> None:
    """Write the graph: `write(node, follow, join)` writes one node; inside a branch it calls
    `follow(successor)`, which writes what lies between that successor and `join`."""
    join = joins(entry, successors, what)

    def path(node: Node | None, stop: Node | None) -> None:
        while node is not None and node != stop:
            meeting = join[node]
            write(node, lambda successor, meeting=meeting: path(successor, meeting), meeting)  # type: ignore[misc]
            node = meeting

    path(entry, None)
