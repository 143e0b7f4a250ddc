// An action selector: a hash over fields, one of which may be of a header that is not there, chooses a member.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<16> flow; }
header more_t { bit<12> x; bit<4> y; }
struct headers { h_t h; more_t more; }
struct metadata { bit<9> port; }
PARSE {
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.b) { 0: accept; default: parse_more; }
    }
    state parse_more { packet.extract(hdr.more); transition accept; }
}
INGRESS {
    @name("members") action_selector(HashAlgorithm.crc16, 128, 16) members;
    direct_counter(CounterType.packets) hits;
    action send(bit<9> port) { std.egress_spec = port; }
    action mark(bit<8> value) { hdr.h.a = value; std.egress_spec = 1; }
    table t {
        key = {
            hdr.h.a: lpm;
            hdr.h.flow: selector;
            hdr.more.x: selector;
            hdr.more.y: selector;
            meta.port: selector;
        }
        actions = { send; mark; }
        implementation = members;
        counters = hits;
    }
    apply { meta.port = std.ingress_port; t.apply(); }
}
REST
