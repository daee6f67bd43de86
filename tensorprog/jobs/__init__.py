"""What is asked of the whole: the main job `tp run` (`study`), sweeps, and the command line (`cli`)."""
