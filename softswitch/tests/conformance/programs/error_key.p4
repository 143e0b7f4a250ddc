// A key that is the parser's error, which has no width in P4Info.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; }
struct headers { h_t h; h_t more; }
struct metadata { error found; }
PARSE {
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: more; default: accept; } }
    state more { packet.extract(hdr.more); transition accept; }
}
INGRESS {
    action set(bit<8> value) { hdr.h.b = value; }
    table by_error {
        key = { meta.found: exact @name("found"); }
        actions = { set; NoAction; }
        const default_action = set(0xEE);
    }
    apply {
        std.egress_spec = 1;
        meta.found = std.parser_error;
        by_error.apply();
    }
}
REST
