"""The service EgressQueues of the embedded switch: rates and depths of its egress queues at run time."""
