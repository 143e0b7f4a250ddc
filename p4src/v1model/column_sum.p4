// One column of a slot: the least key and the block sum.
control ColumnSum(inout metadata_t meta, inout key_t key, inout block_t block,
                  in bit<1> carried, in bit<1> held) {
    register<key_t>(2 * SLOTS) keys;
#define SUMS(p) register<words_t>(2 * SLOTS) sums_##p;
    FOR_EACH_PART(SUMS)

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

#define NO_SUM(p) words_t sum_##p = 0;
        FOR_EACH_PART(NO_SUM)
        if (held == 1) {
#define READ_SUM(p) sums_##p.read(sum_##p, meta.index);
            FOR_EACH_PART(READ_SUM)
        }
        if (carried == 1 && meta.verdict != Verdict.DUPLICATE) {
#define ADD_TO_SUM(p) \
            sum_##p = ADD_WORDS(sum_##p, block.words_##p); \
            sums_##p.write(meta.index, sum_##p);
            FOR_EACH_PART(ADD_TO_SUM)
        }

        // From here on the block is the reply's, not the packet's.
        block.setInvalid();
        if (meta.complete && (held == 1 || (carried == 1 && meta.verdict != Verdict.DUPLICATE))) {
            block.setValid();
#define ANSWER_SUM(p) block.words_##p = sum_##p;
            FOR_EACH_PART(ANSWER_SUM)
        }
    }
}
