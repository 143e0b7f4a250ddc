// An optional key: its value, or anything.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table choices {
        key = { hdr.h.a: optional @name("a"); hdr.h.b: exact @name("b"); }
        actions = { answer; NoAction; }
        default_action = answer(0);
    }
    apply { choices.apply(); std.egress_spec = 1; }
}
REST
