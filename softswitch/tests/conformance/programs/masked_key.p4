// Keys that are expressions: a slice, a sum, the validity of a header.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> answer; }
header tail_t { bit<16> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { 0x80 &&& 0x80: tail; default: accept; } }
    state tail { packet.extract(hdr.tail); transition accept; }
}
INGRESS {
    action answer(bit<8> value) { hdr.h.answer = value; }
    table keys {
        key = {
            hdr.h.a[3:0]: exact @name("low");
            hdr.h.a + hdr.h.b: exact @name("sum");
            hdr.tail.isValid(): exact @name("tail");
        }
        actions = { answer; NoAction; }
        default_action = answer(0xEE);
    }
    apply { keys.apply(); std.egress_spec = 1; }
}
REST
