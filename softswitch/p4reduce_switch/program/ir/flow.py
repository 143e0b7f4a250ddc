"""Algorithms on the graphs of parsers, controls and actions. None is the end.

No function recurses, so the depth of a graph is not limited.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from p4reduce_switch.program.ir.statements import Instruction, Jump, JumpUnless

Node = TypeVar("Node", bound=Hashable)

Graph = Mapping[Node, Sequence[Node | None]]


def order(entry: Node, successors: Graph[Node]) -> list[Node]:
    """Return the nodes reachable from `entry` in postorder: each after its successors, back edges excepted."""
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
    """Return the loop headers: the targets of the back edges of a depth-first search from `entry`."""
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


def jumps(code: Sequence[Instruction]) -> dict[int, tuple[int | None, ...]]:
    """Return an action's control-flow graph: each instruction's successors; of a JumpUnless first that for true."""

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
