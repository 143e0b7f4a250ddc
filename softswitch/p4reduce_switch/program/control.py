"""Controls: the graph of tables and conditions of a pipeline, as one Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import layout as slots
from .actions import Actions
from .errors import InvalidProgram, UnsupportedConstruct
from .expressions import Expressions
from .flow import write_paths
from .layout import Layout
from .source import Source
from .tables import Binding, Entry, KeyField, Table
from .values import binary, constant, wrap

Json = dict[str, Any]
MAX_DEPTH = 40  # deeper nesting continues in a function of its own (Python allows 100 levels)


@dataclass
class TablePlan:
    """A table, and what is needed to connect it once the generated module exists."""

    table: Table
    config: Json
    branches: list[str | None]  # distinct next nodes; an entry's result holds an index into this
    next_on_hit: dict[str, int] = field(default_factory=dict)
    next_on_miss: dict[str, int] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)  # action name -> generated function
    const_entries: list[Entry] = field(default_factory=list)

    def connect(self, namespace: dict[str, Any]) -> None:
        """Hand the generated functions to the table; one that was written in place needs none."""
        if not self.functions:
            return
        bindings = {
            action: Binding(namespace[function], self.next_on_hit[action], self.next_on_miss[action])
            for action, function in self.functions.items()
        }
        self.table.bind(bindings, self.const_entries)


class ControlCompiler:
    """Writes one pipeline (ingress or egress)."""

    def __init__(
        self,
        source: Source,
        layout: Layout,
        expressions: Expressions,
        actions: Actions,
        direct_meters: dict[str, Json],
    ) -> None:
        self.source = source
        self.layout = layout
        self.expressions = expressions
        self.actions = actions
        self.direct_meters = direct_meters
        self.plans: dict[str, TablePlan] = {}
        self.conditionals: dict[str, Json] = {}
        self.calls: dict[str, Json] = {}
        self.nested: list[list[str]] = []  # functions split off because of their depth

    def compile(self, config: Json, name: str) -> None:
        """Write `name(f)`."""
        for profile in config.get("action_profiles", []):
            raise UnsupportedConstruct(f"action profile or selector {profile['name']}")
        self.plans = {t["name"]: self._plan(t) for t in config["tables"]}
        self.conditionals = {c["name"]: c for c in config["conditionals"]}
        self.calls = {c["name"]: c for c in config.get("action_calls", [])}
        graph: dict[str, list[str | None]] = {n: plan.branches for n, plan in self.plans.items()}
        graph |= {
            n: _distinct([c.get("true_next"), c.get("false_next")]) for n, c in self.conditionals.items()
        }
        graph |= {n: [c["next_node"]] for n, c in self.calls.items()}
        for plan in self.plans.values():
            if not self._inlined(plan):
                plan.functions = {
                    self.actions.name(i): self.actions.write_function(i) for i in _action_ids(plan)
                }
        with self.source.block(f"def {name}(f):"):
            if config["init_table"] is not None:
                write_paths(config["init_table"], graph, self._write_node, f"control {config['name']}")

    # ---- tables: what the control plane sees

    def _plan(self, config: Json) -> TablePlan:
        name = config["name"]
        if config["type"] != "simple":
            raise UnsupportedConstruct(f"action profile or selector of table {name} (type {config['type']})")
        keys = [
            KeyField(k.get("name") or ".".join(k["target"]), _kind(k, name), self._key_width(k))
            for k in config["key"]
        ]
        ids = list(config["action_ids"])
        default = config.get("default_entry")
        default_action = None
        if default is not None:
            default_action = (
                self.actions.name(default["action_id"]),
                tuple(int(d, 16) for d in default["action_data"]),
            )
            if default["action_id"] not in ids:
                ids.append(default["action_id"])
        meter = config.get("direct_meters")
        table = Table(
            name,
            keys=keys,
            max_size=int(config["max_size"]),
            action_params={self.actions.name(i): self.actions.params(i) for i in ids},
            default_action=default_action,
            default_is_const=bool(default and default.get("action_const")),
            has_direct_counter=bool(config.get("with_counters")),
            direct_meter_unit=self.direct_meters[meter]["type"] if meter else None,
            supports_timeout=bool(config.get("support_timeout")),
        )
        plan = TablePlan(table, {**config, "action_ids": ids}, [])
        self._read_next(plan)
        plan.const_entries = self._const_entries(config, table)
        return plan

    def _read_next(self, plan: TablePlan) -> None:
        """Number the distinct next nodes, and say which follows each action on a hit and on a miss."""
        following = plan.config["next_tables"]
        names = [self.actions.name(i) for i in plan.config["action_ids"]]
        hit_or_miss = "__HIT__" in following or "__MISS__" in following
        base = plan.config.get("base_default_next")
        on_hit = {n: following.get("__HIT__") if hit_or_miss else following.get(n, base) for n in names}
        on_miss = {n: following.get("__MISS__") if hit_or_miss else following.get(n, base) for n in names}
        missing = [] if plan.table.default_action else [following.get("__MISS__") if hit_or_miss else base]
        plan.branches = _distinct([*missing, *on_miss.values(), *on_hit.values()])
        plan.next_on_hit = {n: plan.branches.index(target) for n, target in on_hit.items()}
        plan.next_on_miss = {n: plan.branches.index(target) for n, target in on_miss.items()}

    def _key_width(self, key: Json) -> int:
        if key["match_type"] == "valid" or key["target"][1] == "$valid$":
            return 1
        return self.layout.header(key["target"][0]).type.field(key["target"][1]).width

    def _const_entries(self, config: Json, table: Table) -> list[Entry]:
        entries = config.get("entries", [])
        highest = max((e.get("priority") or 0 for e in entries), default=0)
        result = []
        for item in entries:
            match = tuple(_const_match(part) for part in item["match_key"])
            action = item["action_entry"]
            ranked = any(k.match_type in ("ternary", "range", "optional") for k in table.keys)
            priority = highest + 1 - int(item.get("priority") or 0) if ranked else 0
            params = tuple(int(d, 16) for d in action["action_data"])
            result.append(Entry(match, priority, self.actions.name(action["action_id"]), params, const=True))
        return result

    # ---- code

    def _write_node(self, node: str, follow: Callable[[str | None], None], join: str | None) -> None:
        if self.source.depth > MAX_DEPTH:
            self._write_apart(node, follow, join)
        elif node in self.plans:
            self._write_table(self.plans[node], follow, join)
        elif node in self.conditionals:
            self._write_condition(self.conditionals[node], follow, join)
        elif node in self.calls:
            self.actions.write_inline(self.calls[node]["action_id"], ())
            self._return_on_exit(self.actions.may_exit(self.calls[node]["action_id"]))
        else:
            raise InvalidProgram(f"the control flow names an unknown node {node}")

    def _write_apart(self, node: str, follow: Callable[[str | None], None], join: str | None) -> None:
        name = self.source.fresh("nested")
        with self.source.detached() as lines, self.source.block(f"def {name}(f):"):
            self._write_node(node, follow, join)
        self.nested.append(lines)
        self.source.add(f"{name}(f)")
        self._return_on_exit(True)

    def _return_on_exit(self, may_exit: bool) -> None:
        if may_exit:
            self.source.add(f"if f[{slots.EXIT}]: return")

    def _write_condition(self, config: Json, follow: Callable[[str | None], None], join: str | None) -> None:
        yes, no = config.get("true_next"), config.get("false_next")
        if yes == no:
            return
        test = self.expressions.boolean(config["expression"])
        if yes == join:
            test, yes, no = f"not {test}", no, yes
        with self.source.block(f"if {test}:"):
            follow(yes)
        if no != join:
            with self.source.block("else:"):
                follow(no)

    def _inlined(self, plan: TablePlan) -> bool:
        """True for p4c's stand-ins for plain statements: no key, and one action that never changes."""
        table = plan.table
        return (
            not table.keys
            and table.default_is_const
            and table.default_action is not None
            and not table.has_direct_meter
            and self.actions.can_inline(_default_id(plan))
        )

    def _write_table(self, plan: TablePlan, follow: Callable[[str | None], None], join: str | None) -> None:
        if self._inlined(plan):
            assert plan.table.default_action is not None
            action = _default_id(plan)
            self.actions.write_inline(action, plan.table.default_action[1])
            self._return_on_exit(self.actions.may_exit(action))
            follow(plan.branches[plan.next_on_miss[plan.table.default_action[0]]])
            return
        self._write_lookup(plan)
        self._return_on_exit(any(self.actions.may_exit(i) for i in _action_ids(plan)))
        branches = [(i, target) for i, target in enumerate(plan.branches) if target != join]
        if branches and len(plan.branches) > 2:
            self.source.add("x = r[2]")
        for index, target in branches:
            choice = "x" if len(plan.branches) > 2 else "r[2]"
            if len(plan.branches) == 1:
                follow(target)
            else:
                with self.source.block(f"{'el' if index != branches[0][0] else ''}if {choice} == {index}:"):
                    follow(target)

    def _write_lookup(self, plan: TablePlan) -> None:
        """`r` becomes the lookup's result, and its action runs."""
        table = plan.table
        get, miss = self.source.bind("get", table.get), self.source.bind("miss", table.miss)
        keys = [self._key_code(key) for key in plan.config["key"]]
        key_code = keys[0] if len(keys) == 1 else f"({', '.join(keys)})" if keys else "()"
        if not keys:
            self.source.add(f"r = {miss}(())")
        elif len(keys) == 1:
            self.source.add(f"r = {get}({key_code}) or {miss}({key_code})")
        else:
            self.source.add(f"k = {key_code}")
            self.source.add(f"r = {get}(k) or {miss}(k)")
        if table.has_direct_meter:
            self._write_direct_meter(plan)
        if table.has_direct_counter:
            with self.source.block("if r[3]:"):
                self.source.add(f"c = r[3]; c.packets += 1; c.bytes += f[{slots.INGRESS_LENGTH}]")
        if any(params for params in table.action_params.values()):
            self.source.add("r[0](f, *r[1])")
        else:
            self.source.add("r[0](f)")

    def _write_direct_meter(self, plan: TablePlan) -> None:
        header_name, field_name = self.direct_meters[plan.config["direct_meters"]]["result_target"]
        header = self.layout.header(header_name)
        slot = header.base + header.type.field(field_name).offset
        color = self.source.bind("meter_color", plan.table.meter_color)
        self.source.add(f"if r[3]: f[{slot}] = {color}(r[3], f[{slots.INGRESS_LENGTH}])")

    def _key_code(self, key: Json) -> str:
        if key["match_type"] == "valid":
            return f"f[{self.layout.header(key['target']).valid}]"
        value = wrap(self.expressions.field(*key["target"]), self._key_width(key), False)
        return binary("&", value, constant(int(key["mask"], 16))).code if key.get("mask") else value.code


def _kind(key: Json, table: str) -> str:
    kind = key["match_type"]
    if kind not in ("exact", "lpm", "ternary", "range", "optional", "valid"):
        raise UnsupportedConstruct(f"match kind {kind} of table {table}")
    return "exact" if kind == "valid" else str(kind)


def _const_match(part: Json) -> Any:
    """One element of a const entry's match, in the form that Table takes."""
    match part["match_type"]:
        case "valid":
            return int(part["key"])
        case "exact":
            return int(part["key"], 16)
        case "lpm":
            return int(part["key"], 16), int(part["prefix_length"])
        case "ternary" | "optional":
            return int(part["key"], 16), int(part["mask"], 16)
        case "range":
            return int(part["start"], 16), int(part["end"], 16)
    raise UnsupportedConstruct(f"const entry with match kind {part['match_type']}")


def _distinct(nodes: list[str | None]) -> list[str | None]:
    return list(dict.fromkeys(nodes))


def _action_ids(plan: TablePlan) -> list[int]:
    return list(plan.config["action_ids"])


def _default_id(plan: TablePlan) -> int:
    return int(plan.config["default_entry"]["action_id"])
