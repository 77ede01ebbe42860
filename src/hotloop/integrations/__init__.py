"""hotloop inside other people's libraries. Each module needs the library it is for, and nothing else imports it."""
