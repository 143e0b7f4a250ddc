// Headers with a varbit field of few bytes are compared.
#include "construct.p4"

header h_t { bit<8> bytes; bit<8> same; }
header options_t { bit<8> kind; varbit<32> data; }
struct headers { h_t h; options_t first; options_t second; }
struct metadata {}
PARSE {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.first, (bit<32>)hdr.h.bytes << 3);
        packet.extract(hdr.second, (bit<32>)hdr.h.same << 3);
        transition accept;
    }
}
INGRESS {
    apply {
        hdr.h.same = 0;
        if (hdr.first == hdr.second) { hdr.h.same = 1; }
        std.egress_spec = 1;
    }
}
REST
