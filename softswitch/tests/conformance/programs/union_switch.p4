// Making one member of a union valid makes the other invalid.
#include "construct.p4"

header h_t { bit<8> operation; }
header one_t { bit<16> value; }
header two_t { bit<8> value; }
header_union either_t { one_t one; two_t two; }
struct headers { h_t h; either_t either; }
struct metadata {}
PARSE { state start { packet.extract(hdr.h); packet.extract(hdr.either.one); transition accept; } }
INGRESS {
    apply {
        if (hdr.h.operation == 1) { hdr.either.two.setValid(); hdr.either.two.value = 0xA5; }
        if (hdr.h.operation == 2) { hdr.either.one.setInvalid(); }
        if (hdr.h.operation == 3) { hdr.either.two.setValid(); hdr.either.one.setValid(); hdr.either.one.value = 0x1234; }
        std.egress_spec = 1;
    }
}
REST
