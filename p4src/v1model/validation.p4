// Is an aggregation frame well formed? Sets meta.drop to the first thing wrong with it.
// Runs before any state is looked at, so that a bad frame can change nothing.
control Validation(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    apply {
        byte_count_t payload = BASE_BYTES;
        bit<1> nonzero = 0;               // a field that must be zero is not
        bit<16> checksum = 0;

        if (hdr.base.isValid() && hdr.base.type == FrameType.HELLO) {
            payload = payload + NONCE_BYTES;
            if (hdr.base.epoch != 0 || hdr.base.slot != 0 || hdr.base.round != 0 || hdr.base.present != 0) {
                nonzero = 1;
            }
        } else {
            payload = payload + GUARD_BYTES + KEYS_BYTES + PRESENT_BYTES;
        }
        if (hdr.base.type != FrameType.RESULT && hdr.base.type != FrameType.PENDING
            && (hdr.base.level != 0 || hdr.base.seen != 0)) {
            nonzero = 1;
        }
        if (hdr.guard.isValid()) {
            if (hdr.guard.reserved != 0) {
                nonzero = 1;
            }
            hash(checksum, HashAlgorithm.csum16, 16w0, HEADER_CHECKED_FIELDS, 32w0x10000);
        }

        if (standard.parser_error != error.NoError) {
            meta.drop = Drop.TRUNCATED;
        } else if (standard.checksum_error != 0) {
            meta.drop = Drop.CHECKSUM;
        } else if (hdr.ipv4.more_and_offset != 0) {
            meta.drop = Drop.FRAGMENT;
        } else if (!hdr.base.isValid()) {
            meta.drop = Drop.NOT_SERVED;  // UDP behind IPv4 options
        } else if (hdr.base.version != WIRE_VERSION) {
            meta.drop = Drop.VERSION;
        } else if (!hdr.guard.isValid() && !hdr.hello.isValid()) {
            meta.drop = Drop.TYPE;
        } else if (nonzero == 1) {
            meta.drop = Drop.RESERVED;
        } else if ((hdr.base.present & ALL_COLUMNS) != hdr.base.present
                   || hdr.udp.bytes != UDP_BYTES + payload
                   || hdr.ipv4.total_bytes != IPV4_BYTES + UDP_BYTES + payload
                   || standard.packet_length != (bit<32>)(ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + payload)) {
            meta.drop = Drop.LENGTH;
        } else if (hdr.guard.isValid() && hdr.guard.checksum != checksum) {
            meta.drop = Drop.HEADER_CHECKSUM;
        }
    }
}
