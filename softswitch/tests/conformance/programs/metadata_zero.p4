// Metadata starts at 0 for each frame.
#include "construct.p4"

header h_t { bit<8> value; bit<8> before; bit<16> wide; }
struct headers { h_t h; }
struct metadata { bit<8> value; bit<16> wide; bool flag; }
PARSE_H
INGRESS {
    apply {
        hdr.h.before = meta.value;
        hdr.h.wide = meta.wide;
        if (meta.flag) { hdr.h.before = 0xFF; }
        meta.value = hdr.h.value;
        meta.wide = (bit<16>)hdr.h.value << 4;
        meta.flag = true;
        std.egress_spec = 1;
    }
}
REST
