"""What is asked of the whole: the main job, sweeps, depth profiles, and the command line.

In go requests, as arguments or settings; out come files, printed blocks and exit codes.

    run      `tp run`: check, limit, networks of each width, comparison, files
    choices  the program of each combination of constants that a study varies
    sweeps   one program at several widths and constants, several times over
    depths   tokens of a family from layer to layer, over constants
    cli      arguments in, exit code out: one function for each command
"""
