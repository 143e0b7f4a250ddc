// And, or and not of conditions; the right side runs only if it counts.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    bit<8> calls = 0;
    action answer(bit<8> value) { hdr.h.answer = hdr.h.answer | value; }
    table t { key = { hdr.h.b: exact @name("b"); } actions = { NoAction; answer; } default_action = answer(0x80); }
    apply {
        hdr.h.answer = 0;
        if (hdr.h.a > 10 && t.apply().hit) { hdr.h.answer = hdr.h.answer | 1; }
        if (hdr.h.a == 0 || !(hdr.h.b != 3)) { hdr.h.answer = hdr.h.answer | 2; }
        if (!(hdr.h.a[0:0] == 1) && (hdr.h.b < 5 || hdr.h.b > 9)) { hdr.h.answer = hdr.h.answer | 4; }
        std.egress_spec = 1;
    }
}
REST
