// Refused: HashAlgorithm.random, which BMv2 does not have either.
#include "common.p4"

header h_t { bit<8> a; bit<16> b; }
struct headers_t { h_t h; }
struct meta_t { bit<8> unused; }
PARSER { state start { packet.extract(hdr.h); transition accept; } }
EMPTY_VERIFY
INGRESS {
    apply {
        hash(hdr.h.b, HashAlgorithm.random, 16w0, { hdr.h.a }, 16w100);
        std.egress_spec = 1;
    }
}
EMPTY_EGRESS
EMPTY_UPDATE
DEPARSE_ALL
SWITCH
