"""P4Runtime's messages and RPCs: `from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r`."""
