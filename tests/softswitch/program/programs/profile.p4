// Refused: a table with an action profile.
#include "common.p4"

header h_t { bit<8> a; }
struct headers_t { h_t h; }
struct meta_t { bit<8> unused; }
PARSER { state start { packet.extract(hdr.h); transition accept; } }
EMPTY_VERIFY
INGRESS {
    action forward(bit<9> port) { std.egress_spec = port; }
    table t {
        key = { hdr.h.a : exact; }
        actions = { forward; }
        implementation = action_profile(16);
    }
    apply { t.apply(); }
}
EMPTY_EGRESS
EMPTY_UPDATE
DEPARSE_ALL
SWITCH
