"""Launch the command line from a checkout: ``python cli.py ...`` is ``robustkpca ...``."""

from robustkpca.commands import main

if __name__ == "__main__":
    main()
