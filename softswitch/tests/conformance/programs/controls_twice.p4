// One control used twice has state of its own each time.
#include "construct.p4"

header h_t { bit<8> which; bit<8> count; }
ONLY_H
PARSE_H
control Count(inout h_t h) {
    register<bit<8>>(1) seen;
    apply { bit<8> n; seen.read(n, 0); seen.write(0, n + 1); h.count = n; }
}
INGRESS {
    Count() left;
    Count() right;
    apply { if (hdr.h.which[0:0] == 0) { left.apply(hdr.h); } else { right.apply(hdr.h); } std.egress_spec = 1; }
}
REST
