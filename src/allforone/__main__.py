"""`python -m allforone` is the command line."""

from .cli import main

main()
