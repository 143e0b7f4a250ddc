"""One target under atheris, started by coverage_guided.py: under_atheris.py TARGET and libFuzzer's own arguments."""

from __future__ import annotations

import sys

import atheris

from fuzz.targets import TARGETS


def main() -> None:
    name, *arguments = sys.argv[1:]
    target = TARGETS[name]
    target.run(target.seeds()[0])  # what it imports late or compiles once is done before memory and time count
    atheris.Setup([sys.argv[0], *arguments], lambda data: None if target.run(data) else None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
