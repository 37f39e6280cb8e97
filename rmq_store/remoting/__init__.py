"""Frames of RocketMQ remoting, and a loop that serves them."""
