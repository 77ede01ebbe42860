"""Train fast: environments, replay, collectors, learners, and the pipelines made of them."""
