"""Programs at finite width: a program, a width and a seed in, `Samples` of independent networks out.

What is reported decides what is needed of each vector (`demand`), few coordinates in a frame or all of them (`frames`);
so a `plan` says what is drawn in which order, and a `job` adds block size and seed.  A `block` of networks runs the
plan's ops on arrays, with random numbers from `normals` (`kernels`, compiled) and weights as matrices or as histories
of products (`matmul`).  `workers` draw blocks in threads, processes or on a `cluster`; `run` puts them together, in
memory or in a folder (`store`).  Nothing here knows of limits.
"""
