// Who may contribute to what. The rank comes from this table, never from the frame.
control Admission(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    action admit_rank(bit<32> rank_bit, bit<32> full, bit<16> slot_base, bit<16> slot_count,
                      bit<16> epoch, bit<16> group) {
        meta.rank_bit = rank_bit;
        meta.full = full;
        meta.slot_base = slot_base;
        meta.slot_count = slot_count;
        meta.lease_epoch = epoch;
        meta.group = group;
    }

    action refuse() {
        meta.drop = DROP_NOT_ADMITTED;
    }

    table admit {
        key = {
            standard.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src_ip: exact @name("ipv4_src");
            hdr.udp.src_port: exact @name("udp_src_port");
            hdr.base.job: exact @name("job");
        }
        actions = { admit_rank; refuse; }
        const default_action = refuse();
        size = 4096;
    }

    apply {
        admit.apply();
        if (meta.drop == DROP_NONE) {
            bit<32> slot = (bit<32>)meta.slot_base + (bit<32>)hdr.base.slot;
            if (hdr.base.epoch != meta.lease_epoch) {
                meta.drop = DROP_EPOCH;
            } else if (hdr.base.slot >= meta.slot_count || slot >= SLOTS) {
                meta.drop = DROP_SLOT;
            }
            meta.index = slot << 1 | (bit<32>)hdr.base.round[0:0];
        }
    }
}
