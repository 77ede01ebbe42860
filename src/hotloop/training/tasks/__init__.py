"""What the pipelines of one game share: making the environment, held-out evaluation, rendering."""
