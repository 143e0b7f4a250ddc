// advance by a number of bytes that stands in the frame, also by none and past its end.
#include "construct.p4"

header h_t { bit<8> bytes; }
header tail_t { bit<16> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); packet.advance((bit<32>)hdr.h.bytes << 3); packet.extract(hdr.tail); transition accept; }
}
INGRESS {
    apply {
        if (std.parser_error == error.PacketTooShort) { hdr.h.bytes = 0xEE; }
        if (hdr.tail.isValid()) { hdr.tail.value = ~hdr.tail.value; }
        std.egress_spec = 1;
    }
}
REST
