// A parser value set.
#include "../construct.p4"

header h_t { bit<8> a; }
ONLY_H
PARSE {
    value_set<bit<8>>(4) kinds;
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { kinds: known; default: accept; } }
    state known { transition accept; }
}
INGRESS { apply { std.egress_spec = 1; } }
REST
