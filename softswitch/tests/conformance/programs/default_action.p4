// A default action that the controller changes and resets.
#include "construct.p4"

header h_t { bit<8> key; bit<32> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<24> high, bit<8> low) { hdr.h.answer = high ++ low; }
    table only { key = { hdr.h.key: exact @name("key"); } actions = { answer; NoAction; } default_action = answer(1, 2); }
    apply { only.apply(); std.egress_spec = 1; }
}
REST
