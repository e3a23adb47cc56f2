"""Run the command line with ``python -m margrave``."""

from margrave.cli.app import main

if __name__ == "__main__":
    main()
