// Const entries of a ternary table: the first that matches.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table truth {
        key = { hdr.h.a: ternary; hdr.h.b: exact; }
        actions = { answer; }
        const default_action = answer(9);
        const entries = {
            (0x10 &&& 0xF0, 1): answer(1);
            (0x18 &&& 0xF8, 1): answer(2);
            (_, 2): answer(3);
            (7, 3): answer(4);
            (_, 3): answer(5);
        }
    }
    apply { truth.apply(); std.egress_spec = 1; }
}
REST
