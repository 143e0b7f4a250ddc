// A clone from egress is the frame as egress left it, and runs egress itself.
#include "construct.p4"

header h_t { bit<8> operation; bit<8> kind; bit<8> kept; bit<8> passes; }
struct headers { h_t h; }
struct metadata { @field_list(2) bit<8> kept; }
PARSE_H
INGRESS { apply { std.egress_spec = 1; } }
EGRESS {
    apply {
        hdr.h.passes = hdr.h.passes + 1;
        if (std.instance_type == 0) {
            meta.kept = 0x33;
            if (hdr.h.operation == 1) { clone_preserving_field_list(CloneType.E2E, 8, 2); }
            if (hdr.h.operation == 2) { clone(CloneType.E2E, 8); mark_to_drop(std); }
        } else {
            hdr.h.kind = (bit<8>)std.instance_type;
            hdr.h.kept = meta.kept;
        }
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
