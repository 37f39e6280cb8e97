"""What is done to stores from outside: copies, backups, advice."""
