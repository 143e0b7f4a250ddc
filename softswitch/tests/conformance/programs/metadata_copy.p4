// mark_to_drop on a copy of standard_metadata drops nothing until the copy is copied back, as an inout argument is.
#include "construct.p4"

header h_t { bit<8> mode; bit<16> marked; bit<16> before; }
ONLY_H
PARSE_H
void discard(inout standard_metadata_t argument) { mark_to_drop(argument); }
INGRESS {
    action mark_copy() {
        standard_metadata_t copy = std;
        mark_to_drop(copy);
        hdr.h.marked = (bit<16>)copy.egress_spec;
        hdr.h.before = (bit<16>)std.egress_spec;
    }
    action mark_argument(inout standard_metadata_t argument) { mark_to_drop(argument); }
    apply {
        std.egress_spec = 1;
        if (hdr.h.mode == 1) { mark_copy(); }
        else if (hdr.h.mode == 2) { mark_argument(std); }
        else if (hdr.h.mode == 3) { discard(std); }
        else if (hdr.h.mode == 4) {
            standard_metadata_t copy = std;
            discard(copy);
            hdr.h.marked = (bit<16>)copy.egress_spec;
        }
        else if (hdr.h.mode == 5) { standard_metadata_t copy = std; mark_to_drop(copy); std = copy; }
        else if (hdr.h.mode == 6) { discard(std); std.egress_spec = 2; }
    }
}
EGRESS {
    action mark_argument(inout standard_metadata_t argument) { mark_to_drop(argument); }
    apply { if (hdr.h.mode == 7) { standard_metadata_t copy = std; discard(copy); } else if (hdr.h.mode == 8) { mark_argument(std); } }
}
NO_VERIFY NO_UPDATE EMIT MAIN
