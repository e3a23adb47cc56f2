"""What noisy tables are expected to be, given each other: the rule behind weights "auto". Pure post-processing."""
