"""`p4reduce-simple-switch`: the embedded switch with the command line of BMv2's simple_switch_grpc."""
