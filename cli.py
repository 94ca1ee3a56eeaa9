"""Launch the command line from a checkout: ``python cli.py ...`` is ``robustkpca ...``."""

from robustkpca.__main__ import main

if __name__ == "__main__":
    main()
