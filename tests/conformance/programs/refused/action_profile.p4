// An action profile.
#include "../construct.p4"

header h_t { bit<8> a; }
ONLY_H
PARSE_H
INGRESS {
    action send(bit<9> port) { std.egress_spec = port; }
    table t { key = { hdr.h.a: exact; } actions = { send; } @name("members") implementation = action_profile(16); }
    apply { t.apply(); }
}
REST
