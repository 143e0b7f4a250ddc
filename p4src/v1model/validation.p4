// Is an aggregation frame well formed? Sets meta.drop to the first thing wrong with it.
// Runs before any state is looked at, so that a bad frame can change nothing.
control Validation(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    apply {
        byte_count_t payload = BASE_BYTES;
        bit<1> nonzero = 0;               // a field that must be zero is not

        if (hdr.base.isValid() && hdr.base.type == FrameType.HELLO) {
            payload = payload + NONCE_BYTES;
            if (hdr.base.epoch != 0 || hdr.base.slot != 0 || hdr.base.round != 0 || hdr.base.present != 0) {
                nonzero = 1;
            }
        } else {
            payload = payload + KEYS_BYTES;
#define ADD_BLOCK_BYTES(c, next) payload = payload + (byte_count_t)hdr.base.present[c:c] * BLOCK_BYTES;
            FOR_EACH_COLUMN(ADD_BLOCK_BYTES)
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
        } else if (hdr.base.type != FrameType.CONTRIBUTE && hdr.base.type != FrameType.HELLO) {
            meta.drop = Drop.TYPE;
        } else if (hdr.base.reserved != 0 || hdr.base.seen != 0 || nonzero == 1) {
            meta.drop = Drop.RESERVED;
        } else if ((hdr.base.present & ALL_COLUMNS) != hdr.base.present
                   || hdr.udp.bytes != UDP_BYTES + payload
                   || hdr.ipv4.total_bytes != IPV4_BYTES + UDP_BYTES + payload
                   || standard.packet_length != (bit<32>)(ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + payload)) {
            meta.drop = Drop.LENGTH;
        }
    }
}
