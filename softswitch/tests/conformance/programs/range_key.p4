// A range, both ends included, with priorities.
#include "construct.p4"

header h_t { bit<16> port; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table ranges {
        key = { hdr.h.port: range @name("port"); }
        actions = { answer; NoAction; }
        default_action = answer(0);
    }
    apply { ranges.apply(); std.egress_spec = 1; }
}
REST
