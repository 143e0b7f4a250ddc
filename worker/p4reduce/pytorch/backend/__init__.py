"""The backend "p4reduce" of torch.distributed.

    group.py       the process group: which collective goes over the switch, which over the companion gloo group
    work.py        what a collective returns before it is done; ../collective_queue.py runs them in their order
    sums.py        sums of each dtype by the communicator
    compressed.py  sums that a compressor sends
    routes.py      which way large broadcasts go
    gloo.py        the companion gloo groups
    contiguous.py  gloo with tensors that are not contiguous
    torch_calls.py how torch calls the group
    calls.py       which collective each rank is in, for errors
    jobs.py        the job of a process group: rank 0 makes it, the others read its name in the store
    options.py     pg_options
    rendezvous.py  how the ranks find each other in a store, and how they part
    members.py     the members of a group that changes them

Nothing here is imported before a process group is made.
"""
