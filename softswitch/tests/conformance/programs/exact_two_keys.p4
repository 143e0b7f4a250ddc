// An exact match on two keys.
#include "construct.p4"

header h_t { bit<8> a; bit<16> b; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table pairs {
        key = { hdr.h.a: exact @name("a"); hdr.h.b: exact @name("b"); }
        actions = { answer; NoAction; }
        default_action = answer(0xFF);
        size = 4;
    }
    apply { pairs.apply(); std.egress_spec = 1; }
}
REST
