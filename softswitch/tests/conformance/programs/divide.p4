// Division and remainder by constants that are powers of two, and constants that fold.
#include "construct.p4"

const bit<16> STEP = 1000 / 7;
header h_t { bit<16> a; bit<16> b; bit<16> c; }
ONLY_H
PARSE_H
INGRESS { apply { hdr.h.b = hdr.h.a / 8; hdr.h.c = hdr.h.a % 16 + STEP; std.egress_spec = 1; } }
REST
