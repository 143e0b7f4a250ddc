// A prefix beside an exact key.
#include "construct.p4"

header h_t { bit<8> zone; bit<16> address; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table routes {
        key = { hdr.h.zone: exact @name("zone"); hdr.h.address: lpm @name("address"); }
        actions = { answer; NoAction; }
        default_action = NoAction();
    }
    apply { routes.apply(); std.egress_spec = 1; }
}
REST
