// A header of variable length, lookahead, advance and the IPv4 checksum over options.
#include "construct.p4"

header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> length; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst; varbit<320> options;
}
header tail_t { bit<8> next; bit<8> wrong; }
struct headers { ipv4_t ipv4; ipv4_t copy; tail_t tail; }
struct metadata { bit<4> version; }

PARSE {
    state start {
        meta.version = packet.lookahead<bit<4>>();
        transition select(meta.version) { 4 : ipv4; default : accept; }
    }
    state ipv4 {
        bit<8> first = packet.lookahead<bit<8>>();
        packet.extract(hdr.ipv4, (bit<32>)((bit<9>)first[3:0] * 32 - 160));
        packet.advance(16);
        packet.extract(hdr.tail);
        transition accept;
    }
}
VERIFY {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id,
            hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst,
            hdr.ipv4.options }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
INGRESS {
    apply {
        hdr.tail.wrong = (bit<8>)std.checksum_error;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        if (hdr.ipv4.tos == 1) { hdr.copy = hdr.ipv4; }
        if (hdr.ipv4.tos == 2) { hdr.ipv4.setInvalid(); }
        std.egress_spec = 1;
    }
}
NO_EGRESS
UPDATE {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.tos != 3, { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length,
            hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst,
            hdr.ipv4.options }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
EMIT
MAIN
