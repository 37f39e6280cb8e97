"""`python -m rmq_store` is the command `rmqstore`."""
import sys

from rmq_store.cli.start import main

sys.exit(main())
