"""`python -m ipate` runs the command line."""

from ipate.cli.app import main

if __name__ == "__main__":
    main()
