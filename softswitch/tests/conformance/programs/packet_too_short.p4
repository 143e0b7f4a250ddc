// A frame that ends inside a header: the header stays invalid, its bytes stay payload.
#include "construct.p4"

header h_t { bit<8> a; }
header long_t { bit<32> x; bit<32> y; }
struct headers { h_t h; long_t long; h_t last; }
struct metadata {}
PARSE { state start { packet.extract(hdr.h); packet.extract(hdr.long); packet.extract(hdr.last); transition accept; } }
INGRESS {
    apply {
        if (hdr.h.isValid()) { hdr.h.a = 1; }
        if (hdr.long.isValid()) { hdr.long.y = 2; }
        if (hdr.last.isValid()) { hdr.last.a = 3; }
        std.egress_spec = 1;
    }
}
REST
