// Header unions, alone and in a stack.
#include "construct.p4"

header kind_t { bit<8> kind; bit<8> operation; }
header short_t { bit<8> value; }
header long_t { bit<32> value; }
header_union item_t { short_t s; long_t l; }
struct headers { kind_t first; item_t item; }
struct metadata { bit<8> unused; }

PARSE {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.kind) { 1 : small; 2 : large; default : accept; }
    }
    state small { packet.extract(hdr.item.s); transition accept; }
    state large { packet.extract(hdr.item.l); transition accept; }
}
NO_VERIFY
INGRESS {
    apply {
        if (hdr.item.isValid()) { hdr.first.kind = hdr.first.kind + 0x10; }
        if (hdr.first.operation == 1) {
            hdr.item.l.setValid();
            hdr.item.l.value = 0xAABBCCDD;
        } else if (hdr.first.operation == 2) {
            hdr.item.s.setInvalid();
        } else if (hdr.first.operation == 3 && hdr.item.s.isValid()) {
            hdr.item.s.value = hdr.item.s.value + 1;
        }
        std.egress_spec = 1;
    }
}
NO_EGRESS
NO_UPDATE
control Emit(packet_out packet, in headers hdr) { apply { packet.emit(hdr.first); packet.emit(hdr.item); } }
MAIN
