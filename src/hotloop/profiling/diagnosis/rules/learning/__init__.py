"""Rules about acting and learning."""
