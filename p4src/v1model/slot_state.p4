// One round a (slot, version): which round it is, which children are in, which columns hold a sum.
// `version` is the round's lowest bit, so a slot remembers its last result while the next round fills.
// A new round's first contribution overwrites everything: nothing is ever cleared.
control SlotState(inout headers_t hdr, inout metadata_t meta) {
    register<bit<48>>(2 * SLOTS) tags;           // epoch ++ round; fresh registers hold epoch 0, which no job has
    register<child_bitmap_t>(2 * SLOTS) seen;    // children that have contributed
    register<column_bitmap_t>(2 * SLOTS) held;   // columns that hold a sum

    apply {
        bit<48> tag = hdr.base.epoch ++ hdr.base.round;
        bit<48> stored_tag;
        child_bitmap_t children = 0;
        column_bitmap_t columns = 0;
        tags.read(stored_tag, meta.index);

        if (stored_tag == tag) {
            seen.read(children, meta.index);
            held.read(columns, meta.index);
            meta.verdict = Verdict.ADD;
            if (children & meta.child_bit != 0) {
                meta.verdict = Verdict.DUPLICATE;
            }
        } else {
            // Another epoch's tag is a dead job's: admission let only this epoch through.
            // Within an epoch ranks go in lock step, so the only new round is the next of this version.
            meta.verdict = Verdict.FIRST;
            if (stored_tag[47:32] == hdr.base.epoch && hdr.base.round - stored_tag[31:0] != 2) {
                meta.drop = Drop.STALE;
            }
        }

        if (meta.drop == Drop.NONE) {
            meta.held = columns;
            children = children | meta.child_bit;
            if (meta.verdict != Verdict.DUPLICATE) {
                columns = columns | hdr.base.present;
                tags.write(meta.index, tag);
                seen.write(meta.index, children);
                held.write(meta.index, columns);
            }
            meta.columns = columns;
            meta.complete = children == meta.full;
            hdr.base.seen = children;
        }
    }
}
