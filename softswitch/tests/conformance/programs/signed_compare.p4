// Comparisons of signed and unsigned numbers.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        bit<8> answer = 0;
        int<8> a = (int<8>)hdr.h.a;
        int<8> b = (int<8>)hdr.h.b;
        if (hdr.h.a < hdr.h.b) { answer = answer | 1; }
        if (hdr.h.a >= hdr.h.b) { answer = answer | 2; }
        if (a < b) { answer = answer | 4; }
        if (a >= b) { answer = answer | 8; }
        if (a <= -5) { answer = answer | 16; }
        if (a > 100) { answer = answer | 32; }
        hdr.h.answer = answer;
        std.egress_spec = 1;
    }
}
REST
