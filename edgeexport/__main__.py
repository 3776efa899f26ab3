"""`python -m edgeexport`."""

from edgeexport.cli.main import main

main()
