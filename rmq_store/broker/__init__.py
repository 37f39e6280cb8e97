"""A RocketMQ broker over a store: processors by request code, and what they share."""
