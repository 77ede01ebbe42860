"""PPO for Ricochet Robots: networks with and without memory, trained on whole sequences."""
