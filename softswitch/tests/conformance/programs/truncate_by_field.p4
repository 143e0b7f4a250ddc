// truncate to a sum of fields: within the headers, within the payload, to nothing, past the end; twice.
#include "construct.p4"

header h_t { bit<16> bytes; bit<8> more; bit<8> again; }
header tail_t { bit<32> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE { state start { packet.extract(hdr.h); packet.extract(hdr.tail); transition accept; } }
INGRESS {
    apply {
        bit<16> again = (bit<16>)hdr.h.again;
        truncate((bit<32>)hdr.h.bytes + (bit<32>)hdr.h.more);
        if (again != 0) { truncate((bit<32>)again); }
        std.egress_spec = 1;
    }
}
REST
