// A select without a default: NoMatch, and what was extracted stays.
#include "construct.p4"

header h_t { bit<8> a; bit<8> fault; }
header tail_t { bit<8> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: tail; 2: accept; } }
    state tail { packet.extract(hdr.tail); transition accept; }
}
INGRESS {
    apply {
        hdr.h.fault = 0;
        if (std.parser_error == error.NoMatch) { hdr.h.fault = 1; }
        if (std.parser_error == error.PacketTooShort) { hdr.h.fault = 2; }
        std.egress_spec = 1;
    }
}
REST
