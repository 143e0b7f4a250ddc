// The alternative to v1model/column_sum.p4 that the benchmark compares with: a register a word.
// Same control, same results; BLOCK_WORDS must be 32, and bmv2_rate.py gives block_t a field a word.
#define EACH_WORD(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)

control ColumnSum(inout metadata_t meta, inout key_t key, inout block_t block,
                  in bit<1> carried, in bit<1> held) {
    register<key_t>(2 * SLOTS) keys;
#define DECLARE_WORD(w) register<bit<32>>(2 * SLOTS) sums_##w;
    EACH_WORD(DECLARE_WORD)

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

        bool adds = carried == 1 && meta.verdict != Verdict.DUPLICATE;
#define DECLARE_SUM(w) bit<32> sum_##w = 0;
        EACH_WORD(DECLARE_SUM)
        if (held == 1) {
#define READ_WORD(w) sums_##w.read(sum_##w, meta.index);
            EACH_WORD(READ_WORD)
        }
        if (adds) {
#define ADD_WORD(w) sum_##w = sum_##w + block.word_##w; sums_##w.write(meta.index, sum_##w);
            EACH_WORD(ADD_WORD)
        }

        block.setInvalid();
        if (meta.complete && (held == 1 || adds)) {
            block.setValid();
#define REPLY_WORD(w) block.word_##w = sum_##w;
            EACH_WORD(REPLY_WORD)
        }
    }
}
