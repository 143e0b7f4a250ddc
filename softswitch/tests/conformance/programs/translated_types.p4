// Types that P4Runtime shows as others: as wider numbers, and as strings, for which neither switch takes entries.
#include "construct.p4"

@p4runtime_translation("p4reduce/id", 16)
type bit<12> id_t;
@p4runtime_translation("p4reduce/wide", 32)
type bit<8> wide_t;
@p4runtime_translation("p4reduce/name", string)
type bit<8> name_t;

header h_t { id_t id; bit<4> rest; wide_t wide; name_t name; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<4> value) { hdr.h.rest = value; }
    action rename(id_t id) { hdr.h.id = id; }
    action widen(wide_t wide) { hdr.h.wide = wide; }
    action call_it(name_t name) { hdr.h.name = name; }
    table ids { key = { hdr.h.id: exact; } actions = { answer; rename; } }
    table wides { key = { hdr.h.wide: exact; } actions = { answer; widen; } default_action = widen((wide_t)1); }
    table names { key = { hdr.h.name: exact; } actions = { answer; call_it; } default_action = answer(9); }
    apply {
        std.egress_spec = 1;
        if (!ids.apply().hit) { names.apply(); }
        wides.apply();
    }
}
REST
