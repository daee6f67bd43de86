"""The shipped programs: grades, laws at finite width, limits."""
