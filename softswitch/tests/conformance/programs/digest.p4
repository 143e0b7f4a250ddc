// Digests of a struct.
#include "construct.p4"

header h_t { bit<8> mode; bit<48> mac; }
ONLY_H
struct seen_t { bit<48> mac; bit<9> port; bit<8> mode; }
PARSE_H
INGRESS {
    apply {
        if (hdr.h.mode != 0) { digest<seen_t>(1, { hdr.h.mac, std.ingress_port, hdr.h.mode }); }
        if (hdr.h.mode == 2) { hdr.h.mac = 0; mark_to_drop(std); } else { std.egress_spec = 1; }
    }
}
REST
