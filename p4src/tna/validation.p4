// Is an aggregation frame well formed? And what else is a frame for the switch? Runs before any state is looked at.
// One table, whose first entry that matches decides: the first thing wrong with a frame is the reason that counts. "Not
// zero" is written as the entry behind the one for zero.
control Validation(in headers_t hdr, inout metadata_t meta,
                   in ingress_intrinsic_metadata_from_parser_t from_parser) {
    action is(bit<8> form) {
        meta.form = form;
    }

#define IS(reason) is((bit<8>)Drop.reason)
    table form {
        key = {
            from_parser.parser_err: ternary;
            hdr.arp.isValid(): ternary;
            hdr.icmp.isValid(): ternary;
            hdr.udp.isValid(): ternary;
            hdr.base.isValid(): ternary;
            hdr.hello.isValid(): ternary;
            hdr.guard.isValid(): ternary;
            meta.ipv4_fault: ternary;
            hdr.arp.operation: ternary;
            hdr.ipv4.protocol: ternary;
            hdr.ipv4.version_ihl: ternary;
            hdr.ipv4.more_and_offset: ternary;
            hdr.icmp.type: ternary;
            hdr.icmp.code: ternary;
            hdr.udp.dst_port: ternary;
            hdr.base.version: ternary;
            hdr.base.type: ternary;
            hdr.base.level: ternary;
            hdr.base.seen: ternary;
            hdr.guard.reserved: ternary;
            hdr.base.present: ternary;
            hdr.base.epoch: ternary;
            hdr.base.slot: ternary;
            hdr.base.round: ternary;
        }
        actions = { is; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            // parser_err, arp, icmp, udp, base, hello, guard, ipv4_fault, ARP operation,
            //     protocol, version_ihl, fragment, ICMP type and code, UDP port, version, type, level, seen, guard.reserved,
            //     present, epoch, slot, round
            (_, true, _, _, _, _, _, _, ARP_REQUEST, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): is(FORM_ARP);
            (_, true, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(NOT_SERVED);
            (_, _, true, _, _, _, _, false, _, _, _, _, ICMP_ECHO, 0, _, _, _, _, _, _, _, _, _, _): is(FORM_PING);
            (_, _, true, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(NOT_SERVED);
            // UDP, to another port
            (0, _, _, true, false, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(NOT_SERVED);
            // UDP, to the aggregation port or without a UDP header
            (PARSER_ERROR_PARTIAL_HDR &&& PARSER_ERROR_PARTIAL_HDR, _, _, _, _, _, _, _, _, PROTOCOL_UDP, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(TRUNCATED);
            (PARSER_ERROR_NO_MATCH &&& PARSER_ERROR_NO_MATCH, _, _, _, _, _, _, _, _, PROTOCOL_UDP, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(TRUNCATED);
            (_, _, _, _, _, _, _, true, _, PROTOCOL_UDP, 0x45, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(CHECKSUM);
            (_, _, _, false, _, _, _, _, _, PROTOCOL_UDP, _, 0, _, _, _, _, _, _, _, _, _, _, _, _): IS(NOT_SERVED);
            (_, _, _, false, _, _, _, _, _, PROTOCOL_UDP, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(FRAGMENT);
            (0, _, _, _, _, false, true, _, _, _, _, _, _, _, _, _, FrameType.CONTRIBUTE, 0, 0, 0, _, _, _, _): is(FORM_CONTRIBUTION);
            (_, _, _, _, _, false, true, _, _, _, _, _, _, _, _, _, FrameType.CONTRIBUTE, _, _, _, _, _, _, _): IS(RESERVED);
            (0, _, _, _, _, false, true, _, _, _, _, _, _, _, _, _, _, _, _, 0, _, _, _, _): is(FORM_ANSWER);
            (_, _, _, _, _, false, true, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(RESERVED);
            (0, _, _, _, _, true, false, _, _, _, _, _, _, _, _, _, _, 0, 0, _, 0, 0, 0, 0): is(FORM_HELLO);
            (_, _, _, _, _, true, false, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(RESERVED);
            (_, _, _, _, true, _, _, _, _, _, _, _, _, _, _, WIRE_VERSION, _, _, _, _, _, _, _, _): IS(TYPE);
            (_, _, _, _, true, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): IS(VERSION);
        }
        size = 32;
    }

    action is_right() {
        meta.length_right = 1;
    }

    // Ingress has no count of the frame's bytes: what lies behind the blocks is neither seen nor counted. A frame that
    // ends too soon is the parser's error, since the trailer is missing then.
#define CONTRIBUTION_BYTES(n) (UDP_BYTES + BASE_BYTES + GUARD_BYTES + KEYS_BYTES + BLOCK_BYTES * (n))
#define RIGHT_LENGTH(present, n) \
            (false, present, CONTRIBUTION_BYTES(n), IPV4_BYTES + CONTRIBUTION_BYTES(n)): is_right();
#define HELLO_BYTES (UDP_BYTES + BASE_BYTES + NONCE_BYTES)
    table lengths {
        key = {
            hdr.hello.isValid(): exact;
            hdr.base.present: exact;
            hdr.udp.bytes: exact;
            hdr.ipv4.total_bytes: exact;
        }
        actions = { is_right; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            FOR_EACH_SUBSET(RIGHT_LENGTH)
            (true, 0, HELLO_BYTES, IPV4_BYTES + HELLO_BYTES): is_right();
        }
        size = 512;
    }

    apply {
        form.apply();
        if (hdr.base.isValid()) {
            lengths.apply();
        }
    }
}
