// An action profile: entries of two tables share members, with a direct counter, hit, and action_run.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> trace; }
ONLY_H
PARSE_H
INGRESS {
    @name("members") action_profile(16) members;
    direct_counter(CounterType.packets_and_bytes) hits;
    action send(bit<9> port) { std.egress_spec = port; }
    action mark(bit<8> value) { hdr.h.trace = value; std.egress_spec = 1; }
    table first { key = { hdr.h.a: exact; } actions = { send; mark; } implementation = members; counters = hits; }
    table second { key = { hdr.h.b: ternary; } actions = { send; mark; } implementation = members; }
    apply {
        if (first.apply().hit) { hdr.h.a = 0xF1; }
        if (!second.apply().hit) { hdr.h.b = 0xF0; }
    }
}
REST
