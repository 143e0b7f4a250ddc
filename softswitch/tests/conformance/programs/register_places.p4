// What a register holds goes to an element of a stack whose index another register holds.
#include "construct.p4"

header h_t { bit<8> cell; bit<8> element; }
header item_t { bit<16> value; }
struct headers { h_t h; item_t[4] items; }
struct metadata { bit<8> element; bit<16> value; }
PARSE {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        transition accept;
    }
}
INGRESS {
    register<bit<16>>(4) values;
    register<bit<8>>(4) elements;
    apply {
        std.egress_spec = 1;
        if (hdr.items[3].isValid()) {
            elements.read(meta.element, (bit<32>)(hdr.h.cell & 3));
            values.read(meta.value, (bit<32>)(hdr.items[meta.element].value & 3));
            hdr.items[meta.element].value = meta.value;
            values.write((bit<32>)(hdr.h.cell & 3), hdr.items[hdr.h.element & 3].value + 1);
            elements.write((bit<32>)(hdr.h.cell & 3), hdr.h.element & 3);
        }
    }
}
REST
