// Registers of 1, 65 and 512 bits.
#include "construct.p4"

header h_t { bit<1> flag; bit<65> odd; bit<512> wide; bit<6> pad; }
ONLY_H
PARSE_H
INGRESS {
    register<bit<1>>(1) flags;
    register<bit<65>>(1) odds;
    register<bit<512>>(1) wides;
    apply {
        bit<1> flag; bit<65> odd; bit<512> wide;
        flags.read(flag, 0); odds.read(odd, 0); wides.read(wide, 0);
        flags.write(0, flag ^ hdr.h.flag); odds.write(0, odd + hdr.h.odd); wides.write(0, wide + hdr.h.wide);
        hdr.h.flag = flag; hdr.h.odd = odd; hdr.h.wide = wide;
        std.egress_spec = 1;
    }
}
REST
