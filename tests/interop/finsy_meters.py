"""An independent P4Runtime client (finsy) writes and reads meters; prints what it saw as JSON.

Runs in finsy's own environment, which has neither p4reduce nor pytest: python finsy_meters.py ADDRESS PROGRAM, where
PROGRAM.json and PROGRAM.p4info.txtpb are the pipeline.
"""

import asyncio
import json
import sys
from pathlib import Path

from finsy import (
    P4ClientError,
    P4DirectMeterEntry,
    P4MeterConfig,
    P4MeterEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
    Switch,
    SwitchOptions,
)

RATES = P4MeterConfig(cir=1000, cburst=100, pir=2000, pburst=200)
TABLE = "SampleIngress.metered_table"


def metered(*, config: P4MeterConfig | None = None) -> P4TableEntry:
    match = P4TableMatch(kind=7)
    return P4TableEntry(TABLE, match=match, action=P4TableAction("SampleIngress.measure"), meter_config=config)


def numbers(config: P4MeterConfig | None) -> list[int] | None:
    return config and [config.cir, config.cburst, config.pir, config.pburst]


async def session(address: str, program: Path) -> dict[str, object]:
    options = SwitchOptions(
        p4info=program.with_suffix(".p4info.txtpb"), p4blob=program.with_suffix(".json"), device_id=1, fail_fast=True
    )
    seen: dict[str, object] = {}
    async with Switch("meters", address, options) as switch:
        await switch.modify([P4MeterEntry("SampleIngress.pace", index=1, config=RATES)])
        cells = [cell async for cell in switch.read(P4MeterEntry("SampleIngress.pace"))]
        seen["cells"] = [(cell.index, numbers(cell.config)) for cell in cells]
        await switch.modify([P4MeterEntry("SampleIngress.pace", index=1)])
        cells = [cell async for cell in switch.read(P4MeterEntry("SampleIngress.pace", index=1))]
        seen["reset"] = [(cell.index, numbers(cell.config)) for cell in cells]
        await switch.insert([metered(config=RATES)])
        asked = P4TableEntry(TABLE, meter_config=P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0))
        entries = [entry async for entry in switch.read(asked) if not entry.is_default_action and entry.match]
        seen["inserted"] = [(entry.match["kind"], numbers(entry.meter_config)) for entry in entries]
        other = P4MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
        await switch.modify([P4DirectMeterEntry(table_entry=metered(), config=other)])
        direct = [one async for one in switch.read(P4DirectMeterEntry(table_entry=P4TableEntry(TABLE)))]
        seen["direct"] = [(one.table_entry.match["kind"], numbers(one.config)) for one in direct]
        try:
            await switch.insert([P4MeterEntry("SampleIngress.pace", index=0, config=RATES)])
        except P4ClientError as error:
            seen["failed"] = error.details[0].canonical_code.name
    return seen


print(json.dumps(asyncio.run(session(sys.argv[1], Path(sys.argv[2])))))
