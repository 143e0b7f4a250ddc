// Of several ternary entries that match, the one with the largest priority.
#include "construct.p4"

header h_t { bit<16> a; bit<8> b; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table rules {
        key = { hdr.h.a: ternary @name("a"); hdr.h.b: ternary @name("b"); }
        actions = { answer; NoAction; }
        default_action = answer(0);
    }
    apply { rules.apply(); std.egress_spec = 1; }
}
REST
