// The check word of a slot: added like any other word, so that it is right for the sums if each part was for its blocks.
control CheckWord(in metadata_t meta, inout check_t check) {
    register<check_t>(2 * SLOTS) checks;

    apply {
        check_t sum = 0;
        if (meta.verdict != Verdict.FIRST) {
            checks.read(sum, meta.index);
        }
        if (meta.verdict != Verdict.DUPLICATE) {
            sum = sum + check;
            checks.write(meta.index, sum);
        }

        // From here on it is the reply's; PENDING carries no blocks.
        check = 0;
        if (meta.complete) {
            check = sum;
        }
    }
}
