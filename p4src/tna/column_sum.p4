// One column of a slot: the least key and the block sum, word by word.
// A first frame writes 0 where it has no block, so that a sum never waits for what `held` says.
#define BY_VERDICT_AND_PRESENCE(zero, put, add, get) \
            (1, 1, 0): zero(); \
            (1, 1, 1): put(); \
            (1, 0, 0): zero(); \
            (1, 0, 1): put(); \
            (0, 1, 0): get(); \
            (0, 1, 1): add(); \
            (0, 0, 0): get(); \
            (0, 0, 1): get();

#define WORD_REGISTER(c, j) \
    Register<word_t, cell_t>(2 * SLOTS, 0) sums_##j; \
    RegisterAction<word_t, cell_t, word_t>(sums_##j) zero_word_##j = { \
        void apply(inout word_t sum, out word_t now) { \
            sum = 0; \
            now = sum; \
        } \
    }; \
    RegisterAction<word_t, cell_t, word_t>(sums_##j) put_word_##j = { \
        void apply(inout word_t sum, out word_t now) { \
            sum = hdr.block_##c.word_##j; \
            now = sum; \
        } \
    }; \
    RegisterAction<word_t, cell_t, word_t>(sums_##j) add_word_##j = { \
        void apply(inout word_t sum, out word_t now) { \
            sum = sum + hdr.block_##c.word_##j; \
            now = sum; \
        } \
    }; \
    RegisterAction<word_t, cell_t, word_t>(sums_##j) get_word_##j = { \
        void apply(inout word_t sum, out word_t now) { \
            now = sum; \
        } \
    }; \
    action zero_##j() { hdr.block_##c.word_##j = zero_word_##j.execute(meta.index); } \
    action put_##j() { hdr.block_##c.word_##j = put_word_##j.execute(meta.index); } \
    action add_##j() { hdr.block_##c.word_##j = add_word_##j.execute(meta.index); } \
    action get_##j() { hdr.block_##c.word_##j = get_word_##j.execute(meta.index); } \
    table sum_##j { \
        key = { meta.first: exact; meta.fresh: exact; hdr.base.present[c:c]: exact; } \
        actions = { zero_##j; put_##j; add_##j; get_##j; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { BY_VERDICT_AND_PRESENCE(zero_##j, put_##j, add_##j, get_##j) } \
        size = 8; \
    }

#define APPLY_WORD(c, j) sum_##j.apply();

#define COLUMN_SUM(c, next) \
control ColumnSum##c(inout headers_t hdr, in metadata_t meta) { \
    FOR_EACH_WORD(WORD_REGISTER, c) \
    apply { \
        FOR_EACH_WORD(APPLY_WORD, c) \
    } \
} \
control ColumnKey##c(inout headers_t hdr, in metadata_t meta) { \
    Register<key_t, cell_t>(2 * SLOTS, 0) keys; \
    RegisterAction<key_t, cell_t, key_t>(keys) put_key = { \
        void apply(inout key_t least, out key_t now) { \
            least = hdr.keys.key_##c; \
            now = least; \
        } \
    }; \
    RegisterAction<key_t, cell_t, key_t>(keys) min_key = { \
        void apply(inout key_t least, out key_t now) { \
            least = min(least, hdr.keys.key_##c); \
            now = least; \
        } \
    }; \
    RegisterAction<key_t, cell_t, key_t>(keys) get_key = { \
        void apply(inout key_t least, out key_t now) { \
            now = least; \
        } \
    }; \
    action put() { hdr.keys.key_##c = put_key.execute(meta.index); } \
    action add() { hdr.keys.key_##c = min_key.execute(meta.index); } \
    action get() { hdr.keys.key_##c = get_key.execute(meta.index); } \
    table key_##c { \
        key = { meta.first: exact; meta.fresh: exact; } \
        actions = { put; add; get; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { BY_VERDICT(put, add, get) } \
        size = 4; \
    } \
    apply { \
        key_##c.apply(); \
    } \
}
FOR_EACH_COLUMN(COLUMN_SUM)
