"""The backend "p4reduce" of torch.distributed.

    group.py     the process group: which collective goes over the switch, which over the companion gloo group
    work.py      what an asynchronous collective returns, and the thread that runs the collectives in their order
    sums.py      sums of each dtype by the communicator
    jobs.py      the job of a process group: rank 0 makes it, the others read its name in the store
    options.py   pg_options
    rendezvous.py  how the ranks find each other in a store, and how they part

Nothing here is imported before a process group is made.
"""
