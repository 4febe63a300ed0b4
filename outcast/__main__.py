"""`python -m outcast`: the command line."""

from outcast.cli import main

if __name__ == "__main__":
    main()
