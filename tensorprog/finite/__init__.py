"""Programs at finite width: a program, a width and a seed in, `Samples` of independent networks out.

What is reported decides what is needed of each vector, few coordinates in a frame or all of them (`vectors`); so a
`plan` says what is drawn in which order, and with a block size and a seed it is a job.  A `block` of networks runs the
plan's ops on arrays, with weights as matrices or as histories of products, and random numbers from `normals`
(`kernels`, compiled).  `run` hands blocks to threads or an executor, and puts them together in memory or in a folder
(`store`).  Nothing here knows of limits.
"""
