// Sums and differences of 256 bits wrap.
#include "construct.p4"

header h_t { bit<256> a; bit<256> b; }
ONLY_H
PARSE_H
INGRESS { apply { bit<256> sum = hdr.h.a + hdr.h.b; hdr.h.b = hdr.h.a - hdr.h.b; hdr.h.a = sum; std.egress_spec = 1; } }
REST
