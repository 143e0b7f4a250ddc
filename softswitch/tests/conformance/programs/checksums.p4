// A checksum over the payload (as UDP's), with and without its condition.
#include "construct.p4"

header pseudo_t { bit<32> src; bit<32> dst; }
header udp_t { bit<16> sport; bit<16> dport; bit<16> length; bit<16> checksum; }
header flags_t { bit<8> update; bit<8> wrong; }
struct headers { flags_t flags; pseudo_t pseudo; udp_t udp; }
struct metadata { bit<8> unused; }

PARSE {
    state start { packet.extract(hdr.flags); packet.extract(hdr.pseudo); packet.extract(hdr.udp); transition accept; }
}
VERIFY {
    apply {
        verify_checksum_with_payload(hdr.udp.checksum != 0, { hdr.pseudo.src, hdr.pseudo.dst, 8w0, 8w17, hdr.udp.length,
            hdr.udp.sport, hdr.udp.dport, hdr.udp.length }, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}
INGRESS {
    apply {
        hdr.flags.wrong = (bit<8>)std.checksum_error;
        hdr.udp.dport = hdr.udp.dport + 1;
        std.egress_spec = 1;
    }
}
NO_EGRESS
UPDATE {
    apply {
        update_checksum_with_payload(hdr.flags.update == 1, { hdr.pseudo.src, hdr.pseudo.dst, 8w0, 8w17, hdr.udp.length,
            hdr.udp.sport, hdr.udp.dport, hdr.udp.length }, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}
EMIT
MAIN
