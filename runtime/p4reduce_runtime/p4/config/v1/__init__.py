"""P4Info: `from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i`."""
