# Written by hand: the gRPC compiler makes no type stubs.
import grpc

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r

class P4RuntimeStub:
    Write: grpc.UnaryUnaryMultiCallable[p4r.WriteRequest, p4r.WriteResponse]
    Read: grpc.UnaryStreamMultiCallable[p4r.ReadRequest, p4r.ReadResponse]
    SetForwardingPipelineConfig: grpc.UnaryUnaryMultiCallable[
        p4r.SetForwardingPipelineConfigRequest, p4r.SetForwardingPipelineConfigResponse
    ]
    GetForwardingPipelineConfig: grpc.UnaryUnaryMultiCallable[
        p4r.GetForwardingPipelineConfigRequest, p4r.GetForwardingPipelineConfigResponse
    ]
    StreamChannel: grpc.StreamStreamMultiCallable[p4r.StreamMessageRequest, p4r.StreamMessageResponse]
    Capabilities: grpc.UnaryUnaryMultiCallable[p4r.CapabilitiesRequest, p4r.CapabilitiesResponse]
    def __init__(self, channel: grpc.Channel) -> None: ...

def add_P4RuntimeServicer_to_server(servicer: object, server: grpc.Server) -> None: ...
