// A counter for each entry of a table, and none for misses.
#include "construct.p4"

header h_t { bit<8> key; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    direct_counter(CounterType.packets_and_bytes) hits;
    action answer(bit<8> value) { hdr.h.answer = value; }
    table keys {
        key = { hdr.h.key: exact @name("key"); }
        actions = { answer; NoAction; }
        default_action = NoAction();
        counters = hits;
    }
    apply { keys.apply(); std.egress_spec = 1; }
}
REST
