V = "sibling"
