"""The training pipelines, one file each: configuration, agent, `collect`, `learn`, the loss, and last the loop."""
