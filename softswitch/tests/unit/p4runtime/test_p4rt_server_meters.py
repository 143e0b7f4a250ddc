"""Meters: rates through P4Runtime. The colours that they give are recorded, and in test_program_beyond.py."""

from __future__ import annotations

from typing import Any

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import codec
from p4reduce_runtime.p4runtime.entries import Entry, MeterConfig, MeterEntry, TableEntry
from p4reduce_runtime.p4runtime.schema import Schema
from rigs.p4rt import SCHEMA, Raw, code_of, config

I = "SampleIngress."  # noqa: E741
GREEN, YELLOW, RED = 0, 1, 2
RATES = MeterConfig(1000, 2, 2000, 4)
METERED = TableEntry(I + "metered_table", {"h.sample.kind": 7}, I + "measure")
KEY = TableEntry(METERED.table, METERED.match)
EXACT = TableEntry(I + "exact_table", {"h.sample.id": 5, "s.ingress_port": 2}, I + "drop")


def entity(entry: Entry) -> Any:
    return codec.encode(SCHEMA, entry)


def set_rates(out: p4r.MeterConfig, given: MeterConfig) -> None:
    out.cir, out.cburst, out.pir, out.pburst = given.cir, given.cburst, given.pir, given.pburst


def direct(entry: TableEntry, given: MeterConfig | None = None, schema: Schema = SCHEMA) -> Any:
    """The direct meter of an entry."""
    meter = p4r.Entity()
    meter.direct_meter_entry.table_entry.CopyFrom(codec.encode(schema, entry).table_entry)
    if given is not None:
        set_rates(meter.direct_meter_entry.config, given)
    return meter


def rates(raw: Raw, query: Any) -> list[MeterConfig | None]:
    found = [getattr(one, one.WhichOneof("entity")) for one in raw.read(query)]
    return [
        MeterConfig(one.config.cir, one.config.cburst, one.config.pir, one.config.pburst)
        if one.HasField("config")
        else None
        for one in found
    ]


def with_rates(entry: TableEntry, given: MeterConfig) -> Any:
    metered = entity(entry)
    set_rates(metered.table_entry.meter_config, given)
    return metered


def asked_for_rates() -> Any:
    query = p4r.Entity()
    query.table_entry.table_id = SCHEMA.tables["metered_table"].id
    query.table_entry.meter_config.SetInParent()
    return query


# ---- indirect meters


def test_rates_are_set_read_and_reset(raw: Raw) -> None:
    pace = entity(MeterEntry("pace"))
    assert rates(raw, pace) == [None] * 4
    assert raw.write(("MODIFY", entity(MeterEntry("pace", 2, RATES)))) == ["OK"]
    assert rates(raw, pace) == [None, None, RATES, None]
    assert rates(raw, entity(MeterEntry("pace", 2))) == [RATES]
    every = p4r.Entity()
    every.meter_entry.SetInParent()
    assert rates(raw, every) == [None, None, RATES, None]
    assert raw.write(("MODIFY", entity(MeterEntry("pace", None, RATES)))) == ["OK"], "no index: all of them"
    assert rates(raw, pace) == [RATES] * 4
    assert raw.write(("MODIFY", entity(MeterEntry("pace", 1)))) == ["OK"], "no rates: as they were at first"
    assert rates(raw, pace) == [RATES, None, RATES, RATES]
    assert raw.write(("MODIFY", pace)) == ["OK"]
    assert rates(raw, pace) == [None] * 4


def test_invalid_meter_entries_are_refused(raw: Raw) -> None:
    unknown, counted, excess = (entity(MeterEntry("pace", 0, RATES)) for _ in range(3))
    unknown.meter_entry.meter_id = 99
    counted.meter_entry.counter_data.SetInParent()
    excess.meter_entry.config.eburst = 1
    updates = [
        ("MODIFY", entity(MeterEntry("pace", 4, RATES))),
        ("MODIFY", entity(MeterEntry("pace", -1, RATES))),
        ("INSERT", entity(MeterEntry("pace", 0, RATES))),
        ("DELETE", entity(MeterEntry("pace", 0))),
        ("MODIFY", unknown),
        ("MODIFY", entity(MeterEntry("pace", 0, MeterConfig(2, 1, 1, 1)))),
        ("MODIFY", entity(MeterEntry("pace", 0, MeterConfig(1, -1, 1, 1)))),
        ("MODIFY", excess),
        ("MODIFY", counted),
    ]
    assert raw.write(*updates) == ["OUT_OF_RANGE", *["INVALID_ARGUMENT"] * 7, "UNIMPLEMENTED"]
    assert rates(raw, entity(MeterEntry("pace"))) == [None] * 4
    assert code_of(raw.read, entity(MeterEntry("pace", 4))) == "OUT_OF_RANGE"
    assert code_of(raw.read, entity(MeterEntry("pace", -1))) == "INVALID_ARGUMENT"
    assert code_of(raw.read, unknown) == "INVALID_ARGUMENT"
    assert code_of(raw.read, counted) == "UNIMPLEMENTED"


# ---- direct meters


def test_direct_rates_are_set_read_and_reset(raw: Raw) -> None:
    other = TableEntry(METERED.table, {"h.sample.kind": 8}, METERED.action)
    assert raw.write(("INSERT", entity(METERED)), ("INSERT", entity(other))) == ["OK"] * 2
    table, every = p4r.Entity(), p4r.Entity()
    table.direct_meter_entry.table_entry.table_id = SCHEMA.tables["metered_table"].id
    every.direct_meter_entry.table_entry.SetInParent()
    assert rates(raw, table) == rates(raw, every) == [None, None]
    assert raw.write(("MODIFY", direct(KEY, RATES))) == ["OK"]
    assert rates(raw, table) == rates(raw, every) == [RATES, None]
    assert raw.read(direct(KEY)) == [direct(KEY, RATES)]
    assert raw.write(("MODIFY", direct(KEY))) == ["OK"]
    assert rates(raw, table) == [None, None]


def test_invalid_direct_meter_entries_are_refused(raw: Raw) -> None:
    assert raw.write(("INSERT", entity(METERED)), ("INSERT", entity(EXACT))) == ["OK"] * 2
    missing = TableEntry(METERED.table, {"h.sample.kind": 9})
    default, counted = (direct(KEY, RATES) for _ in range(2))
    default.direct_meter_entry.table_entry.ClearField("match")
    default.direct_meter_entry.table_entry.is_default_action = True
    counted.direct_meter_entry.counter_data.SetInParent()
    updates = [
        ("INSERT", direct(KEY, RATES)),
        ("DELETE", direct(KEY, RATES)),
        ("MODIFY", direct(KEY, MeterConfig(2, 1, 1, 1))),
        ("MODIFY", direct(TableEntry(EXACT.table, EXACT.match), RATES)),
        ("MODIFY", direct(missing, RATES)),
        ("MODIFY", default),
        ("MODIFY", counted),
    ]
    assert raw.write(*updates) == [*["INVALID_ARGUMENT"] * 4, "NOT_FOUND", *["UNIMPLEMENTED"] * 2]
    assert rates(raw, direct(KEY)) == [None]
    assert code_of(raw.read, direct(missing)) == "NOT_FOUND"
    assert code_of(raw.read, counted) == "UNIMPLEMENTED"


def test_direct_rates_are_written_and_deleted_with_their_table_entry(raw: Raw) -> None:
    assert raw.write(("INSERT", with_rates(METERED, RATES))) == ["OK"]
    assert raw.read(asked_for_rates()) == [with_rates(METERED, RATES)]
    (plain,) = raw.read(entity(KEY))
    assert not plain.table_entry.HasField("meter_config"), "only reads that ask for them get rates"
    assert raw.write(("MODIFY", with_rates(METERED, MeterConfig(1, 1, 1, 1)))) == ["OK"]
    assert raw.read(asked_for_rates()) == [with_rates(METERED, MeterConfig(1, 1, 1, 1))]
    assert raw.write(("MODIFY", entity(METERED))) == ["OK"]
    assert raw.read(asked_for_rates()) == [entity(METERED)], "a modify without rates resets them"


def test_a_table_entry_with_wrong_rates_is_not_written(raw: Raw) -> None:
    counted = entity(METERED)
    counted.table_entry.meter_counter_data.SetInParent()
    default = with_rates(TableEntry(METERED.table, action=METERED.action, is_default=True), RATES)
    updates = [
        ("INSERT", with_rates(METERED, MeterConfig(2, 1, 1, 1))),
        ("INSERT", with_rates(EXACT, RATES)),
        ("INSERT", counted),
        ("MODIFY", default),
    ]
    assert raw.write(*updates) == ["INVALID_ARGUMENT"] * 2 + ["UNIMPLEMENTED"] * 2
    assert raw.read(asked_for_rates()) == []
    assert code_of(raw.read, counted) == "UNIMPLEMENTED"


def test_reconciling_keeps_rates_and_commit_clears_them(raw: Raw) -> None:
    pace, metered = entity(MeterEntry("pace", 2, RATES)), with_rates(METERED, RATES)
    assert raw.write(("MODIFY", pace), ("INSERT", metered)) == ["OK"] * 2
    raw.set_config("RECONCILE_AND_COMMIT", config=config())
    assert rates(raw, entity(MeterEntry("pace"))) == [None, None, RATES, None]
    assert raw.read(asked_for_rates()) == [metered]
    raw.set_config("VERIFY_AND_COMMIT", config=config())
    assert rates(raw, entity(MeterEntry("pace"))) == [None] * 4
