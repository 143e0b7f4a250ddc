"""Algorithms on the graphs of parsers, controls and actions, for back-ends that write nested statements.

A node that branches is written as a statement up to the point where its branches meet again (its
immediate post-dominator, here its join), and what follows is written once, behind it. None stands for
the end. Nothing recurses: graphs may be as deep as they like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from p4reduce_switch.program.ir.statements import Instruction, Jump, JumpUnless

Node = TypeVar("Node", bound=Hashable)
BRANCHES_OF_A_LEVEL = 16

Graph = Mapping[Node, Sequence[Node | None]]


def order(entry: Node, successors: Graph[Node]) -> list[Node]:
    """Nodes reachable from `entry`, each after all of its successors (but those that lead back to it)."""
    done: list[Node] = []
    seen = {entry}
    stack: list[tuple[Node, Iterator[Node | None]]] = [(entry, iter(successors[entry]))]
    while stack:
        node, following = stack[-1]
        fresh = next((s for s in following if s is not None and s not in seen), None)
        if fresh is None:
            done.append(node)
            stack.pop()
        else:
            seen.add(fresh)
            stack.append((fresh, iter(successors[fresh])))
    return done


def loop_heads(entry: Node, successors: Graph[Node]) -> set[Node]:
    """Nodes that a depth-first walk from `entry` finds again on its own path."""
    heads: set[Node] = set()
    on_path = {entry: True}
    stack: list[tuple[Node, Iterator[Node | None]]] = [(entry, iter(successors[entry]))]
    while stack:
        node, following = stack[-1]
        target = next((s for s in following if s is not None and on_path.get(s, True)), None)
        if target is None:
            on_path[node] = False
            stack.pop()
        elif target in on_path:
            heads.add(target)
        else:
            on_path[target] = True
            stack.append((target, iter(successors[target])))
    return heads


def joins(entry: Node, successors: Graph[Node]) -> dict[Node, Node | None]:
    """Immediate post-dominator of each node reachable from `entry`, in a graph without loops."""
    tree = _Tree[Node]()
    for node in order(entry, successors):
        following = list(successors[node]) or [None]
        target = following[0]
        for other in following[1:]:
            target = tree.meet(target, other)
        tree.add(node, target)
    return tree.parent


def path(node: Node | None, stop: Node | None, join: Mapping[Node, Node | None]) -> Iterator[Node]:
    """What is written in a row from `node` on: it, its join, and so on, up to `stop`."""
    while node is not None and node != stop:
        yield node
        node = join[node]


def visits(
    entries: Iterable[Node], successors: Graph[Node], join: Mapping[Node, Node | None], most: int
) -> dict[Node, int] | None:
    """How many times each node would be written, if its branches were only the first time; None for over `most`."""
    counted: Counter[Node] = Counter()
    total = 0
    pending: list[tuple[Node | None, Node | None]] = [(entry, None) for entry in entries]
    while pending:
        start, stop = pending.pop()
        for node in path(start, stop, join):
            counted[node] += 1
            total += 1
            if total > most:
                return None
            if counted[node] == 1 and len(successors[node]) > 1:
                pending += [(follower, join[node]) for follower in successors[node]]
    return dict(counted)


def expanded(
    entry: Node, successors: Graph[Node], join: Mapping[Node, Node | None], most: int
) -> tuple[int, int] | None:
    """How many nodes nested statements have, written out in full, and how deep they nest; None for over `most`.

    A node with many branches counts as several levels: they are written as a tree of choices.
    """
    total = deepest = 0
    pending: list[tuple[Node | None, Node | None, int]] = [(entry, None, 0)]
    while pending:
        start, stop, depth = pending.pop()
        deepest = max(deepest, depth)
        for node in path(start, stop, join):
            total += 1
            if total > most:
                return None
            branches = len(successors[node])
            if branches > 1:
                below = depth + 1 + (branches // BRANCHES_OF_A_LEVEL).bit_length()
                pending += [(follower, join[node], below) for follower in successors[node]]
    return total, deepest


def jumps(code: Sequence[Instruction]) -> dict[int, tuple[int | None, ...]]:
    """The graph of an action: successors of each instruction; of a JumpUnless first the one for true."""

    def at(index: int) -> int | None:
        return index if index < len(code) else None

    graph: dict[int, tuple[int | None, ...]] = {}
    for index, instruction in enumerate(code):
        if isinstance(instruction, Jump):
            graph[index] = (at(instruction.target),)
        elif isinstance(instruction, JumpUnless):
            graph[index] = tuple(dict.fromkeys((at(index + 1), at(instruction.target))))
        else:
            graph[index] = (at(index + 1),)
    return graph


class _Tree(Generic[Node]):
    """The post-dominator tree, with the end at its root; each node knows a far ancestor, so that two meet fast."""

    def __init__(self) -> None:
        self.parent: dict[Node, Node | None] = {}
        self._far: dict[Node | None, Node | None] = {None: None}
        self._depth: dict[Node | None, int] = {None: 0}

    def add(self, node: Node, parent: Node | None) -> None:
        """Add a node below `parent`; far ancestors make a skew-binary number of the depth."""
        self.parent[node] = parent
        self._depth[node] = self._depth[parent] + 1
        far = self._far[parent]
        farther = self._far[far]
        even = self._depth[parent] - self._depth[far] == self._depth[far] - self._depth[farther]
        self._far[node] = farther if even else parent

    def meet(self, a: Node | None, b: Node | None) -> Node | None:
        """The deepest node that is an ancestor of both."""
        depth, far = self._depth, self._far
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = far[a] if depth[far[a]] >= depth[b] else self._above(a)
        while a != b:
            if far[a] != far[b]:
                a, b = far[a], far[b]
            else:
                a, b = self._above(a), self._above(b)
        return a

    def _above(self, node: Node | None) -> Node | None:
        return None if node is None else self.parent[node]
