"""Actions with their arguments, from requests and into answers (spec, "Action Specification")."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from p4reduce_contracts.p4runtime.schema import ActionInfo, Directory
from p4reduce_switch.p4runtime.bits import data_of, value_of
from p4reduce_switch.p4runtime.status import Code, Refused, invalid

Call = tuple[str, tuple[int, ...]]
"""The name of an action and its arguments in order."""


def call_of(
    given_action: Any, actions: Directory[ActionInfo], allowed: Collection[int], barred: Collection[int], where: str
) -> Call:
    """Return the action that a request's Action names, checked: `barred` are those of `allowed` not allowed `where`."""
    if given_action.action_id not in allowed:
        invalid(f"{where} has no action with id {given_action.action_id}")
    action = actions.by_id[given_action.action_id]
    if action.id in barred:
        raise Refused(Code.PERMISSION_DENIED, f"{where} does not allow {action.name} here")
    given = {param.param_id: param.value for param in given_action.params}
    if len(given) != len(given_action.params) or set(given) != {param.id for param in action.params}:
        wanted = [f"{param.id} ({param.name})" for param in action.params]
        invalid(f"action {action.name} takes exactly the parameters {', '.join(wanted) or 'none'}")
    return action.name, tuple(value_of(given[param.id], param) for param in action.params)


def put_call(name: str, params: tuple[int, ...], actions: Directory[ActionInfo], out: Any) -> None:
    """Write an action that P4Info lists into an answer's Action."""
    action = actions[name]
    out.action_id = action.id
    for param, value in zip(action.params, params, strict=True):
        out.params.add(param_id=param.id, value=data_of(value, param))
