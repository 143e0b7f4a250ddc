// The check word of a slot: added like any other word, so that it is right for the sums if each part was for its blocks.
control CheckWord(inout headers_t hdr, in metadata_t meta) {
    Register<check_t, cell_t>(2 * SLOTS, 0) checks;

    RegisterAction<check_t, cell_t, check_t>(checks) put_check = {
        void apply(inout check_t sum, out check_t now) {
            sum = hdr.guard.check;
            now = sum;
        }
    };
    RegisterAction<check_t, cell_t, check_t>(checks) add_check = {
        void apply(inout check_t sum, out check_t now) {
            sum = sum + hdr.guard.check;
            now = sum;
        }
    };
    RegisterAction<check_t, cell_t, check_t>(checks) get_check = {
        void apply(inout check_t sum, out check_t now) {
            now = sum;
        }
    };

    action put() { hdr.guard.check = put_check.execute(meta.index); }
    action add() { hdr.guard.check = add_check.execute(meta.index); }
    action get() { hdr.guard.check = get_check.execute(meta.index); }

    table check {
        key = { meta.first: exact; meta.fresh: exact; }
        actions = { put; add; get; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { BY_VERDICT(put, add, get) }
        size = 4;
    }

    apply {
        check.apply();
    }
}
