// One round a (slot, version): which round it is, which children are in, which columns hold a sum.
// `version` is the round's lowest bit, so a slot remembers its last result while the next round fills.
// A new round's first contribution overwrites everything: nothing is ever cleared.
//
// A stateful ALU has two comparisons and one result. So the tag, (round, epoch), is kept twice: `tags` tells the round
// that the version holds after this frame, `tags_again` whether this frame opened it. A third register does the
// same for each rank: its tag moves once a round, so that a duplicate is known one stage before `seen` is.
struct tag_t {
    round_t round;
    bit<32> epoch;
}

// The only new round is the next of this version, or any after another epoch's, which is dead.
// A stateful ALU compares beyond 32 bits, so that nothing may be added there: 2^32 - 2 is before 0.
#define IS_NEW(tag) (tag.epoch != meta.epoch || tag.round == meta.round_before)

control Tags(in headers_t hdr, inout metadata_t meta) {
    Register<tag_t, cell_t>(2 * SLOTS, { 0, 0 }) tags;     // fresh registers hold epoch 0, which no job has
    Register<tag_t, cell_t>(2 * SLOTS, { 0, 0 }) tags_again;
    Register<tag_t, cell_t>(RANK_CELLS, { 0, 0 }) rank_tags;

    RegisterAction<tag_t, cell_t, round_t>(tags) take_round = {
        void apply(inout tag_t tag, out round_t stored) {
            if (IS_NEW(tag)) {
                tag.round = meta.round_before + 2;
                tag.epoch = meta.epoch;
            }
            stored = tag.round;
        }
    };

    RegisterAction<tag_t, cell_t, bit<1>>(tags_again) take_round_again = {
        void apply(inout tag_t tag, out bit<1> is_new) {
            is_new = 0;
            if (IS_NEW(tag)) {
                tag.round = meta.round_before + 2;
                tag.epoch = meta.epoch;
                is_new = 1;
            }
        }
    };

    RegisterAction<tag_t, cell_t, bit<1>>(rank_tags) take_rank_round = {
        void apply(inout tag_t tag, out bit<1> is_new) {
            is_new = 0;
            if (IS_NEW(tag)) {
                tag.round = meta.round_before + 2;
                tag.epoch = meta.epoch;
                is_new = 1;
            }
        }
    };

    action which_round() {
        meta.stored = take_round.execute(meta.index);
    }

    action is_first() {
        meta.first = take_round_again.execute(meta.index);
    }

    action is_fresh() {
        meta.fresh = take_rank_round.execute(meta.rank_index);
    }

    // Said to the compiler for its own good: if anything else takes room in their stage, one of them moves on, and all sums
    // with it.
    @stage(1) table tag { actions = { which_round; } const default_action = which_round(); size = 1; }
    @stage(1) table tag_again { actions = { is_first; } const default_action = is_first(); size = 1; }
    @stage(1) table rank_tag { actions = { is_fresh; } const default_action = is_fresh(); size = 1; }

    apply {
        tag.apply();
        tag_again.apply();
        rank_tag.apply();
    }
}

// What a frame is to its round: (first, fresh). First opens it and overwrites, whatever the rank's own tag said; then
// fresh adds; else it is a duplicate, and reads.
#define BY_VERDICT(put, add, get) \
            (1, 1): put(); \
            (1, 0): put(); \
            (0, 1): add(); \
            (0, 0): get();

control SlotState(inout headers_t hdr, inout metadata_t meta) {
    Register<child_bitmap_t, cell_t>(2 * SLOTS, 0) seen;    // children that have contributed
    Register<bit<8>, cell_t>(2 * SLOTS, 0) held;           // columns that hold a sum

    RegisterAction<child_bitmap_t, cell_t, child_bitmap_t>(seen) put_rank = {
        void apply(inout child_bitmap_t ranks, out child_bitmap_t now) {
            ranks = meta.child_bit;
            now = ranks;
        }
    };
    RegisterAction<child_bitmap_t, cell_t, child_bitmap_t>(seen) add_rank = {
        void apply(inout child_bitmap_t ranks, out child_bitmap_t now) {
            ranks = ranks | meta.child_bit;
            now = ranks;
        }
    };
    RegisterAction<child_bitmap_t, cell_t, child_bitmap_t>(seen) get_ranks = {
        void apply(inout child_bitmap_t ranks, out child_bitmap_t now) {
            now = ranks;
        }
    };

    action seen_put() { hdr.base.seen = put_rank.execute(meta.index); }
    action seen_add() { hdr.base.seen = add_rank.execute(meta.index); }
    action seen_get() { hdr.base.seen = get_ranks.execute(meta.index); }

    table ranks {
        key = { meta.first: exact; meta.fresh: exact; }
        actions = { seen_put; seen_add; seen_get; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { BY_VERDICT(seen_put, seen_add, seen_get) }
        size = 4;
    }

    RegisterAction<bit<8>, cell_t, bit<8>>(held) put_columns = {
        void apply(inout bit<8> columns, out bit<8> now) {
            columns = hdr.base.present;
            now = columns;
        }
    };
    RegisterAction<bit<8>, cell_t, bit<8>>(held) add_columns = {
        void apply(inout bit<8> columns, out bit<8> now) {
            columns = columns | hdr.base.present;
            now = columns;
        }
    };
    RegisterAction<bit<8>, cell_t, bit<8>>(held) get_columns = {
        void apply(inout bit<8> columns, out bit<8> now) {
            now = columns;
        }
    };

    action held_put() { meta.held = put_columns.execute(meta.index); }
    action held_add() { meta.held = add_columns.execute(meta.index); }
    action held_get() { meta.held = get_columns.execute(meta.index); }

    table columns {
        key = { meta.first: exact; meta.fresh: exact; }
        actions = { held_put; held_add; held_get; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { BY_VERDICT(held_put, held_add, held_get) }
        size = 4;
    }

    apply {
        ranks.apply();
        columns.apply();
    }
}
