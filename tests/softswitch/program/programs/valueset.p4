// Refused: a parser value set.
#include "common.p4"

header h_t { bit<8> a; }
struct headers_t { h_t h; }
struct meta_t { bit<8> unused; }
PARSER {
    value_set<bit<8>>(4) known;
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { known : accept; default : more; } }
    state more { packet.advance(8); transition accept; }
}
EMPTY_VERIFY
INGRESS { apply { std.egress_spec = 1; } }
EMPTY_EGRESS
EMPTY_UPDATE
DEPARSE_ALL
SWITCH
