"""Old module names, for one version; see `forward`."""
