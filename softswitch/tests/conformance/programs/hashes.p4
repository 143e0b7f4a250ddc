// All hash algorithms over fields that do not fill whole bytes, and over whole ones; a random number between two fields.
#include "construct.p4"

header input_t { bit<32> a; bit<12> b; bit<4> c; bit<8> d; bit<8> least; bit<8> most; }
header output_t { bit<16> crc16; bit<32> crc32; bit<16> csum16; bit<16> xor16; bit<64> identity; bit<16> ragged; bit<16> bounded; bit<8> dice; }
struct headers { input_t in_; output_t out_; }
struct metadata { bit<8> unused; }

PARSE { state start { packet.extract(hdr.in_); transition accept; } }
NO_VERIFY
INGRESS {
    apply {
        hdr.out_.setValid();
        hash(hdr.out_.crc16, HashAlgorithm.crc16, 16w0, { hdr.in_.a, hdr.in_.b, hdr.in_.c, hdr.in_.d }, 32w0x10000);
        hash(hdr.out_.crc32, HashAlgorithm.crc32, 32w0, { hdr.in_.a, hdr.in_.b, hdr.in_.c, hdr.in_.d }, 64w0x100000000);
        hash(hdr.out_.csum16, HashAlgorithm.csum16, 16w0, { hdr.in_.a, hdr.in_.b, hdr.in_.c, hdr.in_.d }, 32w0x10000);
        hash(hdr.out_.xor16, HashAlgorithm.xor16, 16w0, { hdr.in_.a, hdr.in_.b, hdr.in_.c, hdr.in_.d }, 32w0x10000);
        hash(hdr.out_.identity, HashAlgorithm.identity, 64w0, { hdr.in_.a, hdr.in_.b, hdr.in_.c, hdr.in_.d }, 64w0xFFFFFFFFFFFFFFFF);
        hash(hdr.out_.ragged, HashAlgorithm.crc16, 16w0, { hdr.in_.b, hdr.in_.d }, 32w0x10000);
        hash(hdr.out_.bounded, HashAlgorithm.crc32, 16w100, { hdr.in_.a }, 32w10);
        random(hdr.out_.dice, hdr.in_.least, hdr.in_.most);
        std.egress_spec = 1;
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
