"""`python -m tensorprog`, the same as `tp`."""

from tensorprog.jobs.cli import main

if __name__ == "__main__":
    main(prog_name="tp")
