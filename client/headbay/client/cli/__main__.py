"""`python -m headbay.client.cli`: the `headbay` command."""

from headbay.client.cli import main

if __name__ == "__main__":
    main()
