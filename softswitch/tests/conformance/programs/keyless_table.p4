// A table without keys runs its default action.
#include "construct.p4"

header h_t { bit<16> value; }
ONLY_H
PARSE_H
INGRESS {
    action add(bit<16> value) { hdr.h.value = hdr.h.value + value; }
    table always { actions = { add; } default_action = add(3); }
    apply { always.apply(); std.egress_spec = 1; }
}
REST
