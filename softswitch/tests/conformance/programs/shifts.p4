// Shifts left and right by a field, also past the width.
#include "construct.p4"

header h_t { bit<8> by; bit<16> left; bit<16> right; int<16> arithmetic; int<16> signed_left; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.left = hdr.h.left << hdr.h.by;
        hdr.h.right = hdr.h.right >> hdr.h.by;
        hdr.h.arithmetic = hdr.h.arithmetic >> hdr.h.by;
        hdr.h.signed_left = hdr.h.signed_left << hdr.h.by;
        std.egress_spec = 1;
    }
}
REST
