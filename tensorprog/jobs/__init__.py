"""What is asked of the whole: the main job `tp run` (`run`), sweeps, and the command line (`cli`)."""
