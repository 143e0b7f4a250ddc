"""The job service: who takes part in which job, which slots it holds, in which epoch."""
