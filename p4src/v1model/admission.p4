// Who may contribute to what, and whose answers go down. A child's bit comes from this table, never from the frame.
control Admission(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    // A child: a rank, or a switch below. `to_parent`: this switch is not the job's root.
    action admit_rank(child_bitmap_t rank_bit, child_bitmap_t full, slot_index_t slot_base, slot_index_t slot_count,
                      epoch_t epoch, group_t group, bit<1> to_parent) {
        meta.child_bit = rank_bit;
        meta.full = full;
        meta.slot_base = slot_base;
        meta.slot_count = slot_count;
        meta.lease_epoch = epoch;
        meta.group = group;
        meta.to_parent = to_parent == 1;
    }

    action admit_parent(slot_index_t slot_count, epoch_t epoch, group_t group) {
        meta.from_parent = true;
        meta.slot_count = slot_count;
        meta.lease_epoch = epoch;
        meta.group = group;
    }

    action refuse() {
        meta.drop = Drop.NOT_ADMITTED;
    }

    table admit {
        key = {
            standard.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src_ip: exact @name("ipv4_src");
            hdr.udp.src_port: exact @name("udp_src_port");
            hdr.base.job: exact @name("job");
            hdr.guard.secret: exact @name("secret");
        }
        actions = { admit_rank; admit_parent; refuse; }
        const default_action = refuse();
        size = 4096;
    }

    apply {
        admit.apply();
        if (meta.drop == Drop.NONE) {
            bit<32> slot = (bit<32>)meta.slot_base + (bit<32>)hdr.base.slot;
            if (meta.from_parent == (hdr.base.type == FrameType.CONTRIBUTE)) {
                meta.drop = Drop.TYPE;
            } else if (hdr.base.epoch != meta.lease_epoch) {
                meta.drop = Drop.EPOCH;
            } else if (hdr.base.slot >= meta.slot_count || slot >= SLOTS) {
                meta.drop = Drop.SLOT;
            }
            meta.index = slot << 1 | (bit<32>)hdr.base.round[0:0];
        }
    }
}
