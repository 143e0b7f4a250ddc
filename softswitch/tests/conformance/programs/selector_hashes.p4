// Action selectors with each hash algorithm, one in egress; each notes which member it chose.
#include "construct.p4"

header h_t { bit<8> on; bit<32> flow; bit<8> crc16; bit<8> crc32; bit<8> csum; bit<8> xor; bit<8> id; bit<8> egress; }
ONLY_H
PARSE_H
#define SELECTOR(NAME, ALGORITHM, FIELD) \
    action_selector(HashAlgorithm.ALGORITHM, 32, 16) NAME; \
    action set_##NAME(bit<8> value) { hdr.h.FIELD = value; } \
    table choose_##NAME { key = { hdr.h.on: exact; hdr.h.flow: selector; } actions = { set_##NAME; } implementation = NAME; }
INGRESS {
    SELECTOR(by_crc16, crc16, crc16)
    SELECTOR(by_crc32, crc32, crc32)
    SELECTOR(by_csum16, csum16, csum)
    SELECTOR(by_xor16, xor16, xor)
    SELECTOR(by_identity, identity, id)
    apply {
        choose_by_crc16.apply();
        choose_by_crc32.apply();
        choose_by_csum16.apply();
        choose_by_xor16.apply();
        choose_by_identity.apply();
        std.egress_spec = 1;
    }
}
EGRESS {
    SELECTOR(by_custom, crc32_custom, egress)
    apply { choose_by_custom.apply(); }
}
NO_VERIFY NO_UPDATE EMIT MAIN
