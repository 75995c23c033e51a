"""`python -m omnigraph`: the command line."""

from omnigraph.cli.main import main

if __name__ == "__main__":
    main()
