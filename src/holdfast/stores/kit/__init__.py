"""What networked stores stand on: URLs, members, pools, turns; written once, on the driver's streams."""
