// A digest that ingress asks for, and a message of egress with other values: both are as they were written.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<48> mac; }
ONLY_H
struct seen_t { bit<48> mac; bit<8> a; }
PARSE_H
INGRESS {
    apply {
        digest<seen_t>(1, { hdr.h.mac, hdr.h.a });
        std.egress_spec = 1;
    }
}
EGRESS { apply { log_msg("b is {}", { hdr.h.b }); } }
NO_VERIFY NO_UPDATE EMIT MAIN
