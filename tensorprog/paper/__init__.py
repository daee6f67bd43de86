"""The experiments of Sakai, Karakida & Imaizumi 2025 (arXiv 2506.00846): one figure, one command.

A figure is a `Drawing`: `data` draws networks of shipped programs and asks their limits, `draw` puts that data, and
nothing else, into axes.  `figures` lists them, `files` writes them.
"""
