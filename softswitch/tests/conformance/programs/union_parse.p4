// A header union: at most one member is valid.
#include "construct.p4"

header h_t { bit<8> kind; }
header short_t { bit<8> value; }
header long_t { bit<24> value; }
header_union either_t { short_t short; long_t long; }
struct headers { h_t h; either_t either; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); transition select(hdr.h.kind) { 0: short; 1: long; default: accept; } }
    state short { packet.extract(hdr.either.short); transition accept; }
    state long { packet.extract(hdr.either.long); transition accept; }
}
INGRESS {
    apply {
        if (hdr.either.short.isValid()) { hdr.either.short.value = hdr.either.short.value ^ 0xFF; hdr.h.kind = 0x10; }
        else if (hdr.either.long.isValid()) { hdr.either.long.value = hdr.either.long.value + 1; hdr.h.kind = 0x20; }
        std.egress_spec = 1;
    }
}
REST
