"""Delay messages: a native timer delivers what waits in SCHEDULE_TOPIC_XXXX, config/delayOffset.json says how far it is."""
