"""`python -m opsctl.cli`, for an environment without the console script."""

from opsctl.cli import main

main()
