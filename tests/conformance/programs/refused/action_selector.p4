// An action selector.
#include "../construct.p4"

header h_t { bit<8> a; }
ONLY_H
PARSE_H
INGRESS {
    action send(bit<9> port) { std.egress_spec = port; }
    table t {
        key = { hdr.h.a: exact; hdr.h.a: selector; }
        actions = { send; }
        @name("members") implementation = action_selector(HashAlgorithm.crc16, 16, 8);
    }
    apply { t.apply(); }
}
REST
