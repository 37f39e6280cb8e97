"""`python -m rmq_store` is the command `rmqstore`."""
import sys

from rmq_store.cli.main import main

sys.exit(main())
