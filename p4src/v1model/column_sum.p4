// One column of a slot: the least key and the block sum.
control ColumnSum(inout metadata_t meta, inout key_t key, inout block_t block,
                  in bit<1> carried, in bit<1> held) {
    register<key_t>(2 * SLOTS) keys;
    register<words_t>(2 * SLOTS) sums;

    apply {
        key_t least = key;
        if (meta.verdict != Verdict.FIRST) {
            keys.read(least, meta.index);
        }
        if (meta.verdict != Verdict.DUPLICATE) {
            if (key < least) {
                least = key;
            }
            keys.write(meta.index, least);
        }
        key = least;

        words_t sum = 0;
        if (held == 1) {
            sums.read(sum, meta.index);
        }
        if (carried == 1 && meta.verdict != Verdict.DUPLICATE) {
            sum = ADD_WORDS(sum, block.words);
            sums.write(meta.index, sum);
        }

        // From here on the block is the reply's, not the packet's.
        block.setInvalid();
        if (meta.complete && (held == 1 || (carried == 1 && meta.verdict != Verdict.DUPLICATE))) {
            block.setValid();
            block.words = sum;
        }
    }
}
