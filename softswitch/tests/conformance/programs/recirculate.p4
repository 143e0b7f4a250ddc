// A recirculated frame is parsed again as it was deparsed.
#include "construct.p4"

header h_t { bit<8> passes; bit<8> kind; bit<8> kept; bit<16> bytes; }
header extra_t { bit<16> value; }
struct headers { h_t h; extra_t extra; }
struct metadata { @field_list(1) bit<8> kept; bit<8> lost; }
PARSE_H
INGRESS {
    apply {
        hdr.h.kind = (bit<8>)std.instance_type;
        hdr.h.bytes = (bit<16>)std.packet_length;
        hdr.h.kept = meta.kept + meta.lost;
        std.egress_spec = 1;
    }
}
EGRESS {
    apply {
        if (hdr.h.passes & 3 != 0) {
            hdr.h.passes = hdr.h.passes - 1;
            meta.kept = 5;
            meta.lost = 0x60;
            hdr.extra.setValid();
            hdr.extra.value = 0xBEAD;
            recirculate_preserving_field_list(1);
        }
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
