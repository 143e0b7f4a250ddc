// One column of a slot: the least key and the block sum.
// A block is ONE field of BLOCK_WORDS words: one register access and one expression add them all.
const bit<BLOCK_BITS> TOP_BITS = (bit<BLOCK_BITS>)(((1 << BLOCK_BITS) - 1) / 0xFFFFFFFF * 0x80000000);
const bit<BLOCK_BITS> LOW_BITS = (bit<BLOCK_BITS>)(((1 << BLOCK_BITS) - 1) / 0xFFFFFFFF * 0x7FFFFFFF);

control ColumnSum(inout metadata_t meta, inout bit<32> key, inout block_t block,
                  in bit<1> carried, in bit<1> held) {
    register<bit<32>>(2 * SLOTS) keys;
    register<bit<BLOCK_BITS>>(2 * SLOTS) sums;

    apply {
        bit<32> least = key;
        if (meta.verdict != VERDICT_FIRST) {
            keys.read(least, meta.index);
        }
        if (meta.verdict != VERDICT_DUPLICATE) {
            if (key < least) {
                least = key;
            }
            keys.write(meta.index, least);
        }
        key = least;

        bit<BLOCK_BITS> sum = 0;
        if (held == 1) {
            sums.read(sum, meta.index);
        }
        if (carried == 1 && meta.verdict != VERDICT_DUPLICATE) {
            // Word-wise addition modulo 2^32: the low 31 bits cannot carry out of their word,
            // and each word's top bit is the exclusive or of the two and the carry into it.
            sum = ((sum & LOW_BITS) + (block.words & LOW_BITS)) ^ ((sum ^ block.words) & TOP_BITS);
            sums.write(meta.index, sum);
        }

        // From here on the block is the reply's, not the packet's.
        block.setInvalid();
        if (meta.complete && (held == 1 || (carried == 1 && meta.verdict != VERDICT_DUPLICATE))) {
            block.setValid();
            block.words = sum;
        }
    }
}
