"""Action profiles beyond updates/profiles.toml: which members are chosen, and a program that has none."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime.p4runtime.schema import parse_p4info
from rigs.entity_text import action_set, entity, entry, prefix
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, code_of, config

CONFIG = config(
    (PROGRAMS / "action_selector.json").read_bytes(),
    p4info=parse_p4info((PROGRAMS / "action_selector.p4info.txtpb").read_text()),
)


@pytest.fixture
def raw(switch: Served) -> Iterator[Raw]:
    """Primary, with the selector program committed."""
    with Raw(switch.address) as one:
        assert one.arbitrate().status.code == 0
        one.set_config(config=CONFIG)
        yield one


def test_a_p4info_with_a_profile_is_refused_for_a_program_without(raw: Raw) -> None:
    program = json.loads(CONFIG.p4_device_config)
    for pipeline in program["pipelines"]:
        pipeline["action_profiles"] = []
        for table in pipeline["tables"]:
            table["type"] = "simple"
    given = config(json.dumps(program).encode(), p4info=CONFIG.p4info)
    assert code_of(raw.set_config, config=given) == "INVALID_ARGUMENT"


def test_members_that_watch_a_port_that_is_down_are_not_chosen(raw: Raw, switch: Served) -> None:
    sends = action_set((("send", 4), 1, 4), (("send", 5), 1, 0))
    raw.insert(entity(raw.schema, entry("t", prefix(0x10, 4), sends)))
    switch.switch.port_changed(4, False)

    def chosen() -> set[int]:
        for flow in range(20):
            switch.switch.receive(1, bytes((0x10, 0, 0, flow)))
        return {switch.ports.sent.get(timeout=LIMIT_S)[0] for _ in range(20)}

    assert chosen() == {5}
    raw.set_config("RECONCILE_AND_COMMIT", CONFIG)
    assert chosen() == {5}, "the next program knows of the port"
    switch.switch.port_changed(4, True)
    assert chosen() == {4, 5}
