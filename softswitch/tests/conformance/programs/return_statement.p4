// return from an action and from a control.
#include "construct.p4"

header h_t { bit<8> mode; bit<8> trace; }
ONLY_H
PARSE_H
control Inner(inout h_t h) { apply { if (h.mode == 3) { return; } h.trace = h.trace | 0x40; } }
INGRESS {
    Inner() inner;
    action act() { hdr.h.trace = hdr.h.trace | 1; if (hdr.h.mode == 1) { return; } hdr.h.trace = hdr.h.trace | 2; }
    apply {
        std.egress_spec = 1;
        hdr.h.trace = 0;
        act();
        inner.apply(hdr.h);
        if (hdr.h.mode == 2) { return; }
        hdr.h.trace = hdr.h.trace | 0x80;
    }
}
REST
