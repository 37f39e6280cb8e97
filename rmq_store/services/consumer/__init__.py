"""Consumer groups: their offsets, RocketMQ's config files, and a small consumer on top of get."""
