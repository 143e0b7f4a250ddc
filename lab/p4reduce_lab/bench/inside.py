"""Runs one case, in a process of its own: `python -m p4reduce_lab.bench.inside CASE OUT [--quick] [--outside NS]`.

--outside names the network namespace of the parent process: in another one, this process is alone and builds networks.
Writes the findings to the file OUT as JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from p4reduce_lab.bench.case import Run
from p4reduce_lab.bench.cases import BY_NAME
from p4reduce_lab.errors import SetupError
from p4reduce_lab.network import CURRENT, current_id
from p4reduce_lab.processes import Children, ProcessError, terminable


def main() -> None:
    """Run the case that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(BY_NAME))
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--outside", default="", help="the network namespace that this process was started from")
    args = parser.parse_args()
    logs = args.out.parent / f"{args.case}-logs"
    shutil.rmtree(logs, ignore_errors=True)  # an earlier run's controller has left its state there
    logs.mkdir(parents=True)
    networks = args.outside not in ("", current_id())
    if networks:
        CURRENT.run("ip", "link", "set", "lo", "up")
    with terminable(), Children(logs) as children:
        run = Run(args.quick, logs, children, networks=networks)
        try:
            BY_NAME[args.case].measure(run)
        except SetupError as error:
            run.skip(args.case, str(error))
    part = args.out.with_suffix(".part")
    part.write_text(json.dumps(run.findings.document(), indent=1) + "\n", encoding="utf-8")
    part.replace(args.out)


if __name__ == "__main__":
    try:
        main()
    except ProcessError as error:
        raise SystemExit(error.message) from error
