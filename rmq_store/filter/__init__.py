"""SQL92 filters over message properties: grammar, program, and its evaluation in C."""
