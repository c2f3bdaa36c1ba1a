"""`python -m harness.cli`, the same as `zoo`."""

from harness.cli import main

if __name__ == "__main__":
    main()
