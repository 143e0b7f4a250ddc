// A 1024-bit field: 32 words added to a register in one expression without carries between them.
#include "construct.p4"

header block_t { bit<16> index; bit<1024> words; }
struct headers { block_t block; }
struct metadata { bit<1024> sum; }
const bit<1024> LOW = 1024w0x7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF7FFFFFFF;

PARSE { state start { packet.extract(hdr.block); transition accept; } }
NO_VERIFY
INGRESS {
    register<bit<1024>>(4) sums;
    apply {
        sums.read(meta.sum, (bit<32>)hdr.block.index);
        meta.sum = ((meta.sum & LOW) + (hdr.block.words & LOW)) ^ ((meta.sum ^ hdr.block.words) & ~LOW);
        sums.write((bit<32>)hdr.block.index, meta.sum);
        hdr.block.words = meta.sum;
        std.egress_spec = 1;
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
