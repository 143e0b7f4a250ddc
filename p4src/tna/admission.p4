// Who may contribute to what, and whose answers go down. A child's bit comes from this table, never from the frame.
// A child and the parent have two entries, one a version of its slots: so the action adds the slot to a cell number, and nothing is
// shifted. Neither the epoch nor the slot is compared here, but what is left after subtraction; the controller writes the
// second operand's negative, since the chip cannot subtract action data.
control Admission(in headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic) {
    action admit_rank(child_bitmap_t rank_bit, child_bitmap_t full, cell_t first_cell, cell_t first_rank_cell,
                      slot_index_t minus_slot_count, bit<32> epoch, epoch_t minus_epoch, group_t group,
                      bit<1> to_parent) {
        meta.admitted = 1;
        meta.to_parent = to_parent;
        meta.child_bit = rank_bit;
        meta.full = full;
        meta.index = hdr.base.slot + first_cell;
        meta.rank_index = hdr.base.slot + first_rank_cell;
        meta.over = hdr.base.slot + minus_slot_count;
        meta.epoch = epoch;
        meta.round_before = hdr.base.round - 2;
        meta.epoch_off = hdr.base.epoch + minus_epoch;
        meta.group = group;
    }

    action admit_parent(slot_index_t minus_slot_count, epoch_t minus_epoch, group_t group) {
        meta.admitted = 1;
        meta.from_parent = 1;
        meta.over = hdr.base.slot + minus_slot_count;
        meta.epoch_off = hdr.base.epoch + minus_epoch;
        meta.group = group;
    }

    table admit {
        key = {
            intrinsic.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src_ip: exact @name("ipv4_src");
            hdr.udp.src_port: exact @name("udp_src_port");
            hdr.base.job: exact @name("job");
            hdr.guard.secret: exact @name("secret");
            hdr.base.round[0:0]: exact @name("version");
        }
        actions = { admit_rank; admit_parent; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    apply {
        if (hdr.guard.isValid()) {
            admit.apply();
        }
    }
}
