// A parser that accepts nothing: p4c makes variables of the unions, of types that its JSON does not declare. BMv2 ends.
#include "../construct.p4"

header h_t { bit<8> a; }
header wide_t { bit<16> b; }
header_union either_t { h_t small; wide_t large; }
struct headers { either_t either; either_t other; }
struct metadata {}
PARSE { state start { packet.extract(hdr.either.small); hdr.either.small.a = hdr.other.small.a; } }
INGRESS { apply {} }
REST
