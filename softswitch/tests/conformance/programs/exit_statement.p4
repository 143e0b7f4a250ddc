// exit ends ingress, from a control and from an action; egress still runs.
#include "construct.p4"

header h_t { bit<8> mode; bit<8> trace; bit<8> egress; }
ONLY_H
PARSE_H
INGRESS {
    action leave() { hdr.h.trace = hdr.h.trace | 4; exit; }
    apply {
        std.egress_spec = 1;
        hdr.h.trace = 1;
        if (hdr.h.mode == 1) { exit; }
        hdr.h.trace = hdr.h.trace | 2;
        if (hdr.h.mode == 2) { leave(); }
        hdr.h.trace = hdr.h.trace | 8;
    }
}
EGRESS { apply { hdr.h.egress = 0x55; if (hdr.h.mode == 3) { exit; } hdr.h.egress = 0x66; } }
NO_VERIFY NO_UPDATE EMIT MAIN
