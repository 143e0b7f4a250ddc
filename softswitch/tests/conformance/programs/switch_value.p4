// switch over a value.
#include "construct.p4"

header h_t { bit<8> a; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        switch (hdr.h.a) {
            1: { hdr.h.answer = 10; }
            2: 
            3: { hdr.h.answer = 20; }
            0xFF: { mark_to_drop(std); }
            default: { hdr.h.answer = 30; }
        }
        if (hdr.h.a != 0xFF) { std.egress_spec = 1; }
    }
}
REST
