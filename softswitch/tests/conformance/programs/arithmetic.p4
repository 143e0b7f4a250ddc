// Expressions: the operands come in the frame, the results leave in it.
#include "construct.p4"

header operands_t { bit<8> a; bit<8> b; int<8> c; int<8> d; bit<32> e; bit<16> f; bit<4> g; bit<4> h; }
header results_t {
    bit<8> sum; bit<8> difference; bit<8> product; bit<8> saturated_sum; bit<8> saturated_difference;
    int<8> signed_sum; int<8> signed_saturated_sum; int<8> signed_saturated_difference; int<8> negated;
    bit<8> shifted_left; bit<8> shifted_right; int<8> signed_shifted_right; bit<8> complement;
    bit<8> conjunction; bit<8> disjunction; bit<8> exclusive;
    bit<16> concatenated; bit<8> slice; bit<32> patched;
    bit<8> chosen; bit<8> comparisons; int<16> widened; bit<16> zero_extended; bit<8> truncated;
    bit<8> mod8; bit<8> divided; bit<32> shift_by_field; bit<8> nibbles; int<8> signed_product;
}
struct headers { operands_t in_; results_t out_; }
struct metadata { bit<8> unused; bool flag; }

PARSE { state start { packet.extract(hdr.in_); transition accept; } }
NO_VERIFY
INGRESS {
    apply {
        hdr.out_.setValid();
        hdr.out_.sum = hdr.in_.a + hdr.in_.b;
        hdr.out_.difference = hdr.in_.a - hdr.in_.b;
        hdr.out_.product = hdr.in_.a * hdr.in_.b;
        hdr.out_.saturated_sum = hdr.in_.a |+| hdr.in_.b;
        hdr.out_.saturated_difference = hdr.in_.a |-| hdr.in_.b;
        hdr.out_.signed_sum = hdr.in_.c + hdr.in_.d;
        hdr.out_.signed_saturated_sum = hdr.in_.c |+| hdr.in_.d;
        hdr.out_.signed_saturated_difference = hdr.in_.c |-| hdr.in_.d;
        hdr.out_.negated = -hdr.in_.c;
        hdr.out_.shifted_left = hdr.in_.a << 3;
        hdr.out_.shifted_right = hdr.in_.a >> 3;
        hdr.out_.signed_shifted_right = hdr.in_.c >> 2;
        hdr.out_.complement = ~hdr.in_.a;
        hdr.out_.conjunction = hdr.in_.a & hdr.in_.b;
        hdr.out_.disjunction = hdr.in_.a | hdr.in_.b;
        hdr.out_.exclusive = hdr.in_.a ^ hdr.in_.b;
        hdr.out_.concatenated = hdr.in_.b ++ hdr.in_.a;
        hdr.out_.slice = hdr.in_.e[19:12];
        hdr.out_.patched = hdr.in_.e;
        hdr.out_.patched[15:8] = hdr.in_.a;
        hdr.out_.chosen = hdr.in_.a > hdr.in_.b ? hdr.in_.a : hdr.in_.b;
        hdr.out_.comparisons = 0;
        if (hdr.in_.a < hdr.in_.b) { hdr.out_.comparisons[0:0] = 1; }
        if (hdr.in_.a <= hdr.in_.b) { hdr.out_.comparisons[1:1] = 1; }
        if (hdr.in_.c < hdr.in_.d) { hdr.out_.comparisons[2:2] = 1; }
        if (hdr.in_.c >= 0 || hdr.in_.d == -1) { hdr.out_.comparisons[3:3] = 1; }
        if (!(hdr.in_.a != hdr.in_.b) && hdr.in_.isValid()) { hdr.out_.comparisons[4:4] = 1; }
        meta.flag = hdr.in_.a == 7;
        if (meta.flag) { hdr.out_.comparisons[5:5] = 1; }
        meta.flag = (meta.flag == (hdr.in_.b == 7));
        hdr.out_.comparisons[6:6] = (bit<1>)meta.flag;
        hdr.out_.widened = (int<16>)hdr.in_.c;
        hdr.out_.zero_extended = (bit<16>)hdr.in_.a;
        hdr.out_.truncated = (bit<8>)hdr.in_.f;
        hdr.out_.mod8 = hdr.in_.a & 7;
        hdr.out_.divided = hdr.in_.a >> 2;
        hdr.out_.shift_by_field = hdr.in_.e << hdr.in_.b;
        hdr.out_.nibbles = hdr.in_.h ++ hdr.in_.g;
        hdr.out_.signed_product = hdr.in_.c * hdr.in_.d;
        std.egress_spec = 1;
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
