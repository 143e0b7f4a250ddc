// A clone from ingress is the frame as it came, with the metadata of its field list.
#include "construct.p4"

header h_t { bit<8> operation; bit<8> kind; bit<8> kept; bit<8> lost; bit<16> rid; }
struct headers { h_t h; }
struct metadata { @field_list(1) bit<8> kept; bit<8> lost; }
PARSE_H
INGRESS {
    apply {
        meta.kept = 0x11;
        meta.lost = 0x22;
        if (hdr.h.operation == 1) { clone_preserving_field_list(CloneType.I2E, 7, 1); }
        if (hdr.h.operation == 2) { clone(CloneType.I2E, 7); }
        if (hdr.h.operation == 3) { clone(CloneType.I2E, 99); }
        if (hdr.h.operation == 4) { clone(CloneType.I2E, 7); mark_to_drop(std); } else { std.egress_spec = 1; }
        hdr.h.lost = 0x77;
    }
}
EGRESS {
    apply {
        hdr.h.kind = (bit<8>)std.instance_type;
        hdr.h.rid = std.egress_rid;
        hdr.h.kept = meta.kept;
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
