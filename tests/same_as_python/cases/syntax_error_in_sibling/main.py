# A sibling has a syntax error.
