// A 128-bit key and 128 bits of action data.
#include "construct.p4"

header h_t { bit<128> key; bit<128> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<128> value) { hdr.h.answer = value; }
    table wide { key = { hdr.h.key: exact @name("key"); } actions = { answer; NoAction; } default_action = NoAction(); }
    apply { wide.apply(); std.egress_spec = 1; }
}
REST
