// A resubmitted frame is parsed again as it came.
#include "construct.p4"

header h_t { bit<8> passes; bit<8> kind; bit<8> kept; bit<8> lost; }
struct headers { h_t h; }
struct metadata { @field_list(1) bit<8> kept; bit<8> lost; }
PARSE_H
INGRESS {
    apply {
        hdr.h.kind = (bit<8>)std.instance_type;
        hdr.h.kept = meta.kept;
        hdr.h.lost = meta.lost;
        std.egress_spec = 1;
        if (meta.kept < (hdr.h.passes & 3)) {
            meta.kept = meta.kept + 1;
            meta.lost = 0x44;
            hdr.h.passes = 0xFF;
            resubmit_preserving_field_list(1);
        }
    }
}
REST
