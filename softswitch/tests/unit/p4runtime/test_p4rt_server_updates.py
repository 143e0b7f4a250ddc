"""updates/*.toml: the code of each update through P4Runtime, and what is read after it.

A file has cases for one program. An entity is written in protobuf's text format, with `@name` for the id of a name, and
with `$name` or `$name(argument, ...)` for a text of the table `names`; texts behind each other are merged. Steps:

    ["INSERT" or another operation, entity, code, message]: neighbours are one batch; a message is a regular expression
    ["READ", entity, [entity, ...] or code]
    ["SET", action]: the program again
    ["FRAME", port, bytes, [[port, bytes], ...]]: a frame, and those that it becomes, in hexadecimal digits

A case may name another program, and what is replaced in the text of its P4Info. Where it has a code as `refused`, the
program is refused, and there are no steps.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from conformance.case import PROGRAMS
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import parse_p4info
from rigs import entity_text
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, code_name, code_of, config

FILES = {file.stem: tomllib.loads(file.read_text()) for file in sorted(Path(__file__).parent.glob("updates/*.toml"))}
CASES = {f"{stem}: {case['name']}": (file, case) for stem, file in FILES.items() for case in file["case"]}
NAME = re.compile(r"\$([a-z]\w*)(?:\(([^)]*)\))?")
OPERATIONS = p4r.Update.Type.keys()


def expand(names: dict[str, str], text: str) -> str:
    """Return the text with what each `$name` stands for."""
    while found := NAME.search(text):
        given = names[found[1]]
        for number, argument in enumerate((found[2] or "").split(", "), 1):
            given = given.replace(f"${number}", argument)
        text = text[: found.start()] + given + text[found.end() :]
    return text


@pytest.mark.parametrize("name", CASES)
def test_updates_have_their_codes_and_effects(switch: Served, name: str) -> None:
    file, case = CASES[name]
    stem = PROGRAMS / case.get("program", file["program"])
    p4info = text_format.MessageToString(parse_p4info(stem.with_suffix(".p4info.txtpb").read_text()), as_one_line=True)
    for old, new in case.get("p4info", {}).items():
        assert old in p4info
        p4info = p4info.replace(old, new, 1)
    program = config(stem.with_suffix(".json").read_bytes(), p4info=parse_p4info(p4info))
    with Raw(switch.address) as raw:
        raw.arbitrate()
        if "refused" in case:
            assert code_of(raw.set_config, config=program) == case["refused"]
            return
        raw.set_config(config=program)

        def entity(text: str) -> p4r.Entity:
            return entity_text.entity(raw.schema, expand(file["names"], text))

        def take(kind: str, *step: Any) -> None:
            if kind == "READ" and isinstance(step[1], str):
                assert code_of(raw.read, entity(step[0])) == step[1], step
            elif kind == "READ":
                assert raw.read(entity(step[0])) == [entity(one) for one in step[1]], step
            elif kind == "SET":
                raw.set_config(step[0], program)
                assert raw.get_config() == program
            else:
                assert kind == "FRAME"
                switch.switch.receive(step[0], bytes.fromhex(step[1]))
                sent = [switch.ports.sent.get(timeout=LIMIT_S) for _ in step[2]]
                assert [[port, frame.hex()] for port, frame in sent] == step[2], step
                assert switch.ports.sent.empty()

        for are_updates, steps in itertools.groupby(case["steps"], lambda step: step[0] in OPERATIONS):
            if not are_updates:
                for step in steps:
                    take(*step)
                continue
            batch = list(steps)
            errors = raw.errors(*((operation, entity(text)) for operation, text, *_ in batch))
            for (operation, text, code, *message), error in zip(batch, errors, strict=True):
                assert code_name(error.canonical_code) == code, (operation, text, error)
                assert all(re.search(one, error.message) for one in message)
