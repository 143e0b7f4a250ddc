// The longest prefix wins, whatever order the entries came in.
#include "construct.p4"

header h_t { bit<32> address; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table routes {
        key = { hdr.h.address: lpm @name("address"); }
        actions = { answer; NoAction; }
        default_action = answer(0);
    }
    apply { routes.apply(); std.egress_spec = 1; }
}
REST
