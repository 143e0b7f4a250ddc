// What goes back to the children, or on to the parent, and to whom; and what goes nowhere, and why.
// Where a frame goes is decided as soon as `seen` is known; what it says only behind the sums, which still read the
// frame's own `present`.
control Reply(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
              inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
              inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    // By job:
    Counter<bit<32>, job_t>(256, CounterType_t.PACKETS_AND_BYTES) contributions;
    Counter<bit<32>, job_t>(256, CounterType_t.PACKETS_AND_BYTES) duplicates;
    Counter<bit<32>, job_t>(256, CounterType_t.PACKETS_AND_BYTES) results;   // rounds completed, by their last contribution
    Counter<bit<32>, job_t>(256, CounterType_t.PACKETS_AND_BYTES) pendings;  // duplicates of a round still incomplete

    action result_to_group() {
        to_tm.mcast_grp_a = meta.group;
        hdr.bridge.onward = Onward.TO_GROUP;
        hdr.base.type = FrameType.RESULT;
        meta.replies = 1;
        results.count(hdr.base.job);
    }

    action result_to_sender() {
        to_tm.ucast_egress_port = intrinsic.ingress_port;
        hdr.bridge.onward = Onward.TO_SENDER;
        hdr.base.type = FrameType.RESULT;
        meta.replies = 1;
    }

    // A contribution like any other.
    action sum_to_parent() {
        to_tm.mcast_grp_a = meta.group;
        hdr.bridge.onward = Onward.TO_GROUP;
        hdr.base.seen = 0;
        meta.replies = 1;
        results.count(hdr.base.job);
    }

    action sum_to_parent_again() {
        to_tm.mcast_grp_a = meta.group;
        hdr.bridge.onward = Onward.TO_GROUP;
        hdr.base.seen = 0;
        meta.replies = 1;
    }

    action pending_to_sender() {
        to_tm.ucast_egress_port = intrinsic.ingress_port;
        hdr.bridge.onward = Onward.TO_SENDER;
        hdr.base.type = FrameType.PENDING;
        meta.replies = 1;
        meta.pending = 1;
        pendings.count(hdr.base.job);
    }

    action consume() {
        to_deparser.drop_ctl = DROP_FRAME;       // its words are in the registers
    }

    table complete {
        key = { meta.to_parent: exact; meta.first: exact; meta.fresh: exact; }
        actions = { result_to_group; result_to_sender; sum_to_parent; sum_to_parent_again; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (0, 1, 1): result_to_group();
            (0, 1, 0): result_to_group();
            (0, 0, 1): result_to_group();
            (0, 0, 0): result_to_sender();
            (1, 1, 1): sum_to_parent();
            (1, 1, 0): sum_to_parent();
            (1, 0, 1): sum_to_parent();
            (1, 0, 0): sum_to_parent_again();
        }
        size = 8;
    }

    table incomplete {
        key = { meta.first: exact; meta.fresh: exact; }
        actions = { consume; pending_to_sender; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { BY_VERDICT(consume, consume, pending_to_sender) }
        size = 4;
    }

    action count_contribution() { contributions.count(hdr.base.job); }
    table contribution { actions = { count_contribution; } const default_action = count_contribution(); size = 1; }

    action count_duplicate() { duplicates.count(hdr.base.job); }
    table duplicate { actions = { count_duplicate; } const default_action = count_duplicate(); size = 1; }

    apply {
        if (hdr.base.seen == meta.full) {
            complete.apply();
        } else {
            incomplete.apply();
        }
        if (meta.first == 1 || meta.fresh == 1) {
            contribution.apply();
        } else {
            duplicate.apply();
        }
    }
}

// What the reply carries: the blocks of the columns that hold a sum, or none.
control Describe(inout headers_t hdr, inout metadata_t meta) {
    action present_held() {
        hdr.base.present = meta.held;
    }

    action present_none() {
        hdr.base.present = 0;
        hdr.guard.check = 0;
    }

    table present {
        key = { meta.replies: exact; meta.pending: exact; }
        actions = { present_held; present_none; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, 0): present_held();
            (1, 1): present_none();
        }
        size = 2;
    }

#define CARRIES_BLOCK(c, next) \
    action with_block_##c() { hdr.block_##c.setValid(); } \
    action without_block_##c() { hdr.block_##c.setInvalid(); } \
    table block_##c { \
        key = { meta.replies: exact; meta.pending: exact; meta.held[c:c]: exact; } \
        actions = { with_block_##c; without_block_##c; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            (1, 0, 1): with_block_##c(); \
            (1, 0, 0): without_block_##c(); \
            (1, 1, 1): without_block_##c(); \
            (1, 1, 0): without_block_##c(); \
        } \
        size = 4; \
    }
    FOR_EACH_COLUMN(CARRIES_BLOCK)

    apply {
        present.apply();
#define APPLY_BLOCK(c, next) block_##c.apply();
        FOR_EACH_COLUMN(APPLY_BLOCK)
    }
}

// An answer of the parent goes to this switch's children. Dropping, below, overrules this for what is none.
control PassDown(inout headers_t hdr, inout metadata_t meta, inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    Counter<bit<32>, job_t>(256, CounterType_t.PACKETS_AND_BYTES) parent_answers;   // by job

    action to_children() {
        to_tm.mcast_grp_a = meta.group;
        hdr.bridge.onward = Onward.TO_GROUP;
        hdr.base.level = hdr.base.level + 1;
        meta.replies = 1;
        parent_answers.count(hdr.base.job);
    }

    table answer {
        key = { meta.from_parent: exact; meta.header_fault: exact; meta.epoch_off: exact; }
        actions = { to_children; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { (1, false, 0): to_children(); }
        size = 1;
    }

    apply {
        answer.apply();
    }
}

// What is dropped: the first entry that matches is the reason. It also overrules what the controls before it decided,
// so that they need not look at everything; only what leads to a register has looked at all of it (main.p4).
control Dropping(in headers_t hdr, in metadata_t meta,
                 inout ingress_intrinsic_metadata_for_deparser_t to_deparser) {
    Counter<bit<32>, bit<8>>(DROP_REASONS, CounterType_t.PACKETS_AND_BYTES) drops;   // by reason (Drop)

    action because(bit<8> reason) {
        to_deparser.drop_ctl = DROP_FRAME;
        drops.count(reason);
    }

    action pass() {}

#define BECAUSE(reason) because((bit<8>)Drop.reason)
#define BY_FORM(reason) (_, _, 1, _, _, (bit<8>)Drop.reason, _, _, _, _, _, _, _, _, _): BECAUSE(reason);
    table reason {
        key = {
            meta.own_mac: ternary;
            meta.own_ip: ternary;
            meta.to_switch: ternary;
            hdr.udp.isValid(): ternary;
            hdr.udp.src_port: ternary;
            meta.form: ternary;
            meta.length_right: ternary;
            meta.header_fault: ternary;
            meta.color: ternary;
            meta.admitted: ternary;
            meta.from_parent: ternary;
            meta.epoch_off: ternary;
            meta.over: ternary;
            hdr.base.slot: ternary;
            meta.stale: ternary;
        }
        actions = { because; pass; }
        const default_action = pass();
        const entries = {
            // own_mac, own_ip, to_switch, udp, src_port, form, length_right, header_fault, color, admitted, from_parent, epoch_off,
            //     over, slot, stale
            (1, _, _, _, _, _, _, _, _, _, _, _, _, _, _): BECAUSE(SPOOFED);
            // A worker may live on the switch's own machine and share its IP address, but not its UDP port: such a
            // frame goes no further than to the switch, and admission decides. Nobody else may be called so.
            (_, 1, 0, _, _, _, _, _, _, _, _, _, _, _, _): BECAUSE(SPOOFED);
            (_, 1, _, false, _, _, _, _, _, _, _, _, _, _, _): BECAUSE(SPOOFED);
            (_, 1, _, _, AGGREGATION_PORT, _, _, _, _, _, _, _, _, _, _): BECAUSE(SPOOFED);
            (_, _, 0, _, _, _, _, _, _, _, _, _, _, _, _): pass();
            BY_FORM(TRUNCATED)
            BY_FORM(CHECKSUM)
            BY_FORM(FRAGMENT)
            BY_FORM(NOT_SERVED)
            BY_FORM(VERSION)
            BY_FORM(TYPE)
            BY_FORM(RESERVED)
            (_, _, _, _, _, FORM_ARP, _, _, _, _, _, _, _, _, _): pass();
            (_, _, _, _, _, FORM_PING, _, _, _, _, _, _, _, _, _): pass();
            (_, _, _, _, _, _, 0, _, _, _, _, _, _, _, _): BECAUSE(LENGTH);
            (_, _, _, _, _, FORM_HELLO, _, _, METER_RED, _, _, _, _, _, _): BECAUSE(RATE);
            (_, _, _, _, _, FORM_HELLO, _, _, _, _, _, _, _, _, _): pass();
            (_, _, _, _, _, _, _, true, _, _, _, _, _, _, _): BECAUSE(HEADER_CHECKSUM);
            (_, _, _, _, _, _, _, _, _, 0, _, _, _, _, _): BECAUSE(NOT_ADMITTED);
            (_, _, _, _, _, FORM_CONTRIBUTION, _, _, _, _, 1, _, _, _, _): BECAUSE(TYPE);
            (_, _, _, _, _, FORM_ANSWER, _, _, _, _, 0, _, _, _, _): BECAUSE(TYPE);
            (_, _, _, _, _, _, _, _, _, _, _, 0, 0x8000 &&& 0x8000, 0 &&& 0x8000, 0): pass();
            (_, _, _, _, _, _, _, _, _, _, _, 0, 0x8000 &&& 0x8000, 0 &&& 0x8000, 1): BECAUSE(STALE);
            (_, _, _, _, _, _, _, _, _, _, _, 0, _, _, _): BECAUSE(SLOT);
            (_, _, _, _, _, _, _, _, _, _, _, _, _, _, _): BECAUSE(EPOCH);
        }
        size = 32;
    }

    apply {
        reason.apply();
    }
}

// Egress: a replica carries a replication id that says which child it is for; one beyond all children stands for the parent.
control AddressReply(inout egress_headers_t hdr, inout egress_metadata_t meta,
                     in egress_intrinsic_metadata_t intrinsic,
                     inout egress_intrinsic_metadata_for_deparser_t to_deparser) {
    action address_to(mac_address_t dst_mac, ipv4_address_t dst_ip, udp_port_t dst_port,
                      mac_address_t src_mac, ipv4_address_t src_ip, secret_t secret) {
        hdr.ethernet.dst_mac = dst_mac;
        hdr.ethernet.src_mac = src_mac;
        hdr.ipv4.dst_ip = dst_ip;
        hdr.ipv4.src_ip = src_ip;
        hdr.udp.dst_port = dst_port;
        hdr.udp.src_port = AGGREGATION_PORT;
        hdr.guard.secret = secret;
    }

    action nobody() {
        to_deparser.drop_ctl = DROP_FRAME;
    }

    table job_member {
        key = {
            hdr.base.job: exact @name("job");
            intrinsic.egress_rid: exact @name("rank");
        }
        actions = { address_to; nobody; }
        const default_action = nobody();
        size = 4096;
    }

    // The frame turned round, with the secret that it came with.
    action turn_round() {
        mac_address_t switch_mac = hdr.ethernet.dst_mac;
        hdr.ethernet.dst_mac = hdr.ethernet.src_mac;
        hdr.ethernet.src_mac = switch_mac;
        ipv4_address_t switch_ip = hdr.ipv4.dst_ip;
        hdr.ipv4.dst_ip = hdr.ipv4.src_ip;
        hdr.ipv4.src_ip = switch_ip;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = AGGREGATION_PORT;
    }

    action set_lengths(byte_count_t udp_bytes, byte_count_t ipv4_bytes) {
        hdr.udp.bytes = udp_bytes;
        hdr.ipv4.total_bytes = ipv4_bytes;
        hdr.ipv4.ttl = 64;
        hdr.udp.checksum = 0;             // none: optional in IPv4, and it would cover every block
        meta.answer = 1;
    }

#define LENGTHS(present, n) present: set_lengths(CONTRIBUTION_BYTES(n), IPV4_BYTES + CONTRIBUTION_BYTES(n));
    table lengths {
        key = { hdr.base.present: exact; }
        actions = { set_lengths; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = { FOR_EACH_SUBSET(LENGTHS) }
        size = 256;
    }

    apply {
        if (hdr.bridge.onward == Onward.TO_GROUP) {
            job_member.apply();
            lengths.apply();
        } else if (hdr.bridge.onward == Onward.TO_SENDER) {
            turn_round();
            lengths.apply();
        }
    }
}
