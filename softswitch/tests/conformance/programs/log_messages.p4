// Messages with and without values do nothing to the frame.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        log_msg("no values");
        log_msg("two values: {} and {}", { hdr.h.a, hdr.h.b });
        if (hdr.h.a > 3) { log_msg("large"); hdr.h.b = 1; }
        std.egress_spec = 1;
    }
}
REST
