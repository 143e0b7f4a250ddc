"""One target under atheris, in a fork of a process that has imported this; arguments: TARGET and libFuzzer's own."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

PACKAGES = ["p4reduce", "p4reduce_contracts", "p4reduce_controller", "p4reduce_switch", "p4reduce_testbed"]

with atheris.instrument_imports(include=PACKAGES):
    from fuzz.targets import TARGETS


def main() -> None:
    name, *arguments = sys.argv[1:]
    target = TARGETS[name]
    target.run(target.seeds()[0])  # what it imports late or compiles once is done before memory and time count
    atheris.Setup([sys.argv[0], *arguments], lambda data: None if target.run(data) else None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
