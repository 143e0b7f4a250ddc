// HashAlgorithm.random.
#include "../construct.p4"

header h_t { bit<16> a; }
ONLY_H
PARSE_H
INGRESS { apply { hash(hdr.h.a, HashAlgorithm.random, 16w0, { hdr.h.a }, 16w10); std.egress_spec = 1; } }
REST
