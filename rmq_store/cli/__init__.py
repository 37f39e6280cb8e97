"""The command line, `rmqstore` or `python -m rmq_store`. main.py knows all commands, each other file is one."""
